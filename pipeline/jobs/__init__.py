"""The graphs: analyze and batch."""
