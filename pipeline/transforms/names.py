"""Every step label, tag and counter of every graph. Renaming one can break an in-place update."""

from __future__ import annotations

# Batch graph, in the order of the picture in the README.
PLAN = "Plan"
READ_PLAN = "ReadPlan"
SPREAD_TASKS = "SpreadTasks"
ANALYZE = "Analyze"
DECODE_TRAIN = "DecodeTrain"
BUILD_SHARD = "BuildShard"
TRANSFORM_ROWS = "TransformRows"
GROUP_ROWS = "GroupRows"
WRITE_BUCKET = "WriteBucket"
WRITE_DEAD_LETTERS = "WriteDeadLetters"
KEY_REPORTS = "KeyReports"
KEY_PARTS = "KeyParts"
KEY_DEAD_LETTERS = "KeyDeadLetters"
KEY_STATISTICS = "KeyStatistics"
MERGE_STATISTICS = "MergeStatistics"
GATHER = "Gather"
SETTLE = "Settle"
SPREAD_SHARDS = "SpreadShards"
PUBLISH_SHARD = "PublishShard"
KEY_SHARDS = "KeyShards"
GATHER_SHARDS = "GatherShards"
COMMIT = "Commit"

# Tags.
REPORTS = "reports"
PARTS = "parts"
ROWS = "rows"
REJECTIONS = "rejections"
STATISTICS = "statistics"
DEAD_LETTERS = "dead_letters"
ACCOUNTS = "accounts"

# Metrics.
NAMESPACE = "headrace"
ROWS_READ = "rows_read"
ROWS_REJECTED = "rows_rejected"
ROWS_WRITTEN = "rows_written"
BYTES_READ = "bytes_read"
