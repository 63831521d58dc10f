"""Headrace: raw records in, TFRecord training shards and dead letters out."""

__version__ = "0.1.0"
