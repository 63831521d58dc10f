"""Thin Beam PTransforms, one family a file; every label, tag and counter is in names.py."""
