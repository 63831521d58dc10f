"""Step labels of the replay graphs. Those of the streaming one must not be renamed: it can be updated in place."""

from __future__ import annotations

START = "Start"
DEAL_SENDERS = "DealSenders"
SPREAD_SENDERS = "SpreadSenders"
SEND_LETTERS = "SendLetters"
KEY_ACCOUNTS = "KeyAccounts"
GATHER_ACCOUNTS = "GatherAccounts"
WRITE_REPORT = "WriteReport"

# Streaming.
READ_LETTERS = "ReadLetters"
REPLAY_LETTERS = "ReplayLetters"

# Metrics.
NAMESPACE = "headrace_replay"
