"""What scripts/benchmark.py is made of: the data, both peers as their own users write them, our jobs, the table."""
