"""Step labels of the replay graph. Renaming one breaks nothing but dashboards: a replay is never updated in place."""

from __future__ import annotations

START = "Start"
DEAL_SENDERS = "DealSenders"
SPREAD_SENDERS = "SpreadSenders"
SEND_LETTERS = "SendLetters"
KEY_ACCOUNTS = "KeyAccounts"
GATHER_ACCOUNTS = "GatherAccounts"
WRITE_REPORT = "WriteReport"
