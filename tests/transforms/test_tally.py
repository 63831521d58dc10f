"""Counting: what a bundle counted counts once it is done."""

from __future__ import annotations

import pickle

from pipeline.transforms.tally import Tally, forget_totals, totals


def test_a_bundle_that_fails_does_not_count():
    forget_totals()
    tally = Tally()
    tally.begin()
    tally.add("rows", 3)
    tally.begin()
    tally.add("rows", 2)
    tally.add("files")
    assert totals() == {}
    tally.done()
    tally.done()
    assert totals() == {"rows": 2, "files": 1}


def test_a_tally_travels_to_workers():
    forget_totals()
    tally = pickle.loads(pickle.dumps(Tally()))
    tally.add("rows")
    tally.done()
    assert totals() == {"rows": 1}
