"""The verdict on an update: each of the service's rules, and laws that hold for any pair of graphs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.cli import ROOT
from fakes.graphs import graph, source, stateful, step, streaming
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.ops.compatibility import JOB, Side, Verdict, compare
from pipeline.ops.mapping import below, load_name_mapping, mapped, parse_mapping


def judge(old: list[Any], new: list[Any], **more: Any) -> Verdict:
    return compare(Side(graph(*old)), Side(graph(*new)), **more)


def changed(name: str, **facts: Any) -> list[Any]:
    """The streaming graph with facts of one step changed."""
    return [{**one, **facts} if one["name"] == name else one for one in streaming()]


def without(*names: str) -> list[Any]:
    return [one for one in streaming() if one["name"] not in names]


def texts(verdict: Verdict) -> list[str]:
    return [str(reason) for reason in verdict.reasons]


def test_the_same_graph_is_compatible():
    verdict = judge(streaming(), streaming())
    assert verdict.kind == "compatible"
    assert not verdict.cautions
    assert not verdict.mapping


def test_new_steps_are_taken():
    added = [step("Audit", side_inputs={"s": "iterable of bytes"}), stateful("Count")]
    assert judge(streaming(), [*streaming(), *added]).kind == "compatible"


@pytest.mark.parametrize(
    ("name", "facts", "said"),
    [
        ("KeyMessages", {"outputs": {"None": "kv(varint, bytes)"}}, "coder of its output changes from bytes to kv("),
        ("ProcessMessages", {"inputs": {"None": "string_utf8"}}, "coder of its input changes from bytes to string"),
        ("KeyMessages", {"side_inputs": {"s": "iterable of bytes"}}, "side input 's' (iterable of bytes) is new"),
        ("ProcessMessages", {"states": {}}, "state 'bag' (bag(bytes)) goes"),
        ("ProcessMessages", {"states": {"bag": "bag(varint)"}}, "state 'bag' changes from bag(bytes) to bag(varint)"),
        ("ProcessMessages", {"timers": {}}, "timer 'close' (event_time) goes"),
        ("ProcessMessages", {"timers": {"close": "processing_time"}}, "timer 'close' changes"),
        ("ProcessMessages", {"stateful": False, "states": {}, "timers": {}}, "stateful and is not any more"),
        ("KeyMessages", {"urn": "beam:transform:group_by_key:v1"}, "another kind of step"),
        (
            "WriteShards/Name",
            {"windowing": "fixed_windows#1, trigger default"},
            "windowing changes from global_windows",
        ),
    ],
)
def test_a_change_that_the_service_refuses_is_named_with_its_step(name: str, facts: dict[str, Any], said: str):
    verdict = judge(streaming(), changed(name, **facts))
    assert verdict.kind == "incompatible"
    assert any(said in text and text.startswith(f"{name}: ") for text in texts(verdict)), texts(verdict)


def test_a_side_input_that_goes_is_named():
    old = changed("KeyMessages", side_inputs={"s": "iterable of bytes"})
    assert texts(judge(old, streaming())) == ["KeyMessages: side input 's' (iterable of bytes) goes"]


def test_more_state_timers_and_outputs_are_taken():
    more = changed(
        "ProcessMessages",
        states={"bag": "bag(bytes)", "count": "combining(varint)"},
        timers={"close": "event_time", "wait": "processing_time"},
    )
    assert judge(streaming(), more).kind == "compatible"


def test_other_windows_of_the_same_kind_are_a_caution():
    old = changed("Report", windowing="fixed_windows#aa, trigger default")
    new = changed("Report", windowing="fixed_windows#bb, trigger default")
    verdict = judge(old, new)
    assert verdict.kind == "compatible"
    assert [caution.step for caution in verdict.cautions] == ["Report"]


def test_a_stateful_step_that_goes_is_refused_even_when_mapped_to_nothing():
    for mapping in ({}, {"ProcessMessages": ""}):
        verdict = judge(streaming(), without("ProcessMessages"), mapping=mapping)
        assert verdict.kind == "incompatible"
        assert "ProcessMessages: it is stateful and gone: state 'bag', timer 'close' would be lost" in texts(verdict)[0]


def test_a_source_that_goes_is_refused():
    verdict = judge(streaming(), without("ReadMessages/Read"))
    assert verdict.kind == "incompatible"
    assert "ReadMessages/Read: it is a source and gone" in texts(verdict)[0]


def test_a_stateless_step_that_goes_needs_a_mapping_to_nothing():
    verdict = judge(streaming(), without("Report"))
    assert (verdict.kind, verdict.proposal) == ("needs mapping", {"Report": ""})
    assert judge(streaming(), without("Report"), mapping=verdict.proposal).kind == "compatible"


def renamed(old: str, new: str) -> list[Any]:
    return [{**one, "name": mapped(one["name"], {old: new})} for one in streaming()]


def test_a_rename_is_recognised_by_what_the_step_does_and_how_it_is_called():
    verdict = judge(streaming(), renamed("ProcessMessages", "HandleMessages"))
    assert (verdict.kind, verdict.proposal) == ("needs mapping", {"ProcessMessages": "HandleMessages"})


def test_a_composite_is_renamed_by_its_prefix():
    verdict = judge(streaming(), renamed("WriteShards", "StoreShards"))
    assert verdict.proposal == {"WriteShards": "StoreShards"}
    assert judge(streaming(), renamed("WriteShards", "StoreShards"), mapping=verdict.proposal).kind == "compatible"


def test_known_renames_are_applied_where_the_running_job_has_them():
    known = {"WriteShards": "Zz", "LongGone": "KeyMessages"}
    verdict = judge(streaming(), renamed("WriteShards", "Zz"), known=known)
    assert (verdict.kind, verdict.mapping) == ("compatible", {"WriteShards": "Zz"})
    assert judge(streaming(), streaming(), known=known).mapping == {}
    assert judge(streaming(), streaming(), known={"Report": "KeyMessages"}).mapping == {}


def test_the_longest_prefix_of_a_mapping_wins():
    mapping = {"A": "X", "A/b": "Y", "C": ""}
    assert [mapped(name, mapping) for name in ("A", "A/b/c", "A/d", "Ab", "C/d")] == ["X", "Y/c", "X/d", "Ab", ""]


def test_a_rename_that_changes_the_coder_too_is_refused():
    new = [
        {**one, "outputs": {"None": "varint"}} if one["name"] == "HandleMessages" else one
        for one in renamed("ProcessMessages", "HandleMessages")
    ]
    verdict = judge(streaming(), new, mapping={"ProcessMessages": "HandleMessages"})
    assert texts(verdict) == [
        "ProcessMessages: the coder of its output changes from bytes to varint (it becomes HandleMessages)"
    ]
    assert judge(streaming(), new).kind == "incompatible"


def test_a_mapping_must_name_what_is_there():
    verdict = judge(streaming(), streaming(), mapping={"Nowhere": "Report"})
    assert texts(verdict) == ["Nowhere: the mapping names it, but the running job has no such step"]
    verdict = judge(streaming(), streaming(), mapping={"Report": "Nowhere"})
    assert "Report: it is mapped to Nowhere, which the new graph does not have" in texts(verdict)


def test_two_steps_cannot_become_one():
    verdict = judge(streaming(), without("Report"), mapping={"Report": "KeyMessages"})
    assert texts(verdict) == ["Report: it and KeyMessages would both become KeyMessages"]


def test_another_region_engine_or_older_beam_is_refused():
    old = Side(graph(*streaming()), region="europe-west1")
    new = Side(graph(*streaming(), sdk="2.9.0"), region="us-central1", streaming_engine=False)
    said = texts(compare(old, new))
    assert len(said) == 3
    assert all(text.startswith(f"{JOB}: ") for text in said)
    assert "it runs in europe-west1, the update is for us-central1" in said[0]
    assert "back from 2.77.0 to 2.9.0" in said[2]


@pytest.mark.parametrize(
    ("old", "new", "moves"),
    [
        ("europe-west1", "europe-west1-b", False),
        ("europe-west1-b", "europe-west1", False),
        ("europe-west1-b", "europe-west1-c", True),
        ("europe-west1", "europe-west10", True),
        ("europe-west1-b", "us-east1", True),
        ("", "us-east1", False),
    ],
)
def test_workers_cannot_move_to_another_zone_or_region(old, new, moves):
    verdict = compare(Side(graph(*streaming()), region=old), Side(graph(*streaming()), region=new))
    assert (verdict.kind == "incompatible") is moves


def test_a_newer_beam_asks_for_the_compatibility_version():
    old = Side(graph(*streaming(), sdk="2.77.0"))
    verdict = compare(old, Side(graph(*streaming(), sdk="2.100.0")))
    assert "put update_compatibility_version=2.77.0 into" in str(verdict.cautions[0])
    new = Side(graph(*streaming(), sdk="2.100.0"), update_compatibility_version="2.77.0")
    assert not compare(old, new).cautions


NAMES = st.lists(st.sampled_from("ABC"), min_size=1, max_size=3).map("/".join)
STEPS = st.builds(
    lambda name, kind, coder: {
        "plain": step(name, outputs={"None": coder}),
        "stateful": stateful(name, outputs={"None": coder}),
        "source": source(name),
    }[kind],
    NAMES,
    st.sampled_from(["plain", "stateful", "source"]),
    st.sampled_from(["bytes", "varint"]),
)


def leaves(steps: list[Any]) -> list[Any]:
    """Without steps that contain others: a graph has leaves only, each once."""
    by_name = {one["name"]: one for one in steps}
    return [one for name, one in by_name.items() if not any(other.startswith(f"{name}/") for other in by_name)]


GRAPHS = st.lists(STEPS, max_size=6).map(leaves)
MAPPINGS = st.dictionaries(NAMES, st.one_of(NAMES, st.just("")), max_size=2)


@given(GRAPHS)
def test_law_a_graph_can_replace_itself(steps):
    assert judge(steps, steps).kind == "compatible"


def test_a_prefix_is_not_proposed_where_steps_below_it_keep_their_names():
    old = [step("Write/Shards/Open"), step("Write/Shards/Close")]
    verdict = judge(old, [step("Store/Shards/Open"), step("Write/Shards/Close")])
    assert verdict.proposal == {"Write/Shards/Open": "Store/Shards/Open"}


@given(GRAPHS, GRAPHS, MAPPINGS)
@settings(max_examples=300)
def test_law_a_proposal_is_enough(old, new, known):
    verdict = judge(old, new, known=known)
    if verdict.kind == "needs mapping":
        again = judge(old, new, known=known, mapping={**verdict.mapping, **verdict.proposal})
        assert again.kind == "compatible", (verdict, again)


@given(GRAPHS, GRAPHS, MAPPINGS)
def test_law_every_reason_names_a_step_or_the_job(old, new, mapping):
    for reason in judge(old, new, mapping=mapping).reasons:
        assert reason.step in {JOB, *mapping, *(one["name"] for one in [*old, *new])}


@given(GRAPHS, GRAPHS, MAPPINGS)
def test_law_nothing_that_holds_data_is_lost_by_an_update_that_is_called_compatible(old, new, mapping):
    verdict = judge(old, new, mapping=mapping)
    if verdict.kind == "compatible":
        heirs = {one["name"]: one for one in new}
        for one in old:
            if one["stateful"] or one["source"]:
                heir = heirs[mapped(one["name"], verdict.mapping)]
                assert (heir["stateful"], heir["states"]) == (one["stateful"], one["states"])


@given(GRAPHS, GRAPHS, MAPPINGS)
def test_law_the_verdict_is_json_and_does_not_depend_on_order(old, new, mapping):
    verdict = judge(old, new, mapping=mapping)
    assert judge(old[::-1], new[::-1], mapping=dict(reversed(mapping.items()))) == verdict
    assert json.loads(json.dumps(verdict.as_json()))["verdict"] == verdict.kind


def test_the_renames_that_come_with_the_program_can_be_read(tmp_path):
    assert load_name_mapping() == json.loads((ROOT / "templates/streaming/name_mapping.json").read_text())["renames"]
    with pytest.raises(UsageError, match=r"none\.json cannot be read .* is the installation complete"):
        load_name_mapping(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"renames": {"A": 1}}')
    with pytest.raises(UsageError, match=r"bad\.json: renames\.A: expected a string"):
        load_name_mapping(tmp_path / "bad.json")


def test_the_renames_that_come_with_the_program_lead_to_steps_that_it_has():
    golden = json.loads((ROOT / "tests" / "golden" / "streaming_graph.json").read_text())
    names = {one["name"] for one in golden["steps"]}
    for old, new in load_name_mapping().items():
        assert not any(below(name, old) for name in names), old
        assert new == "" or any(below(name, new) for name in names), new


def test_a_mapping_on_the_command_line_is_a_json_object():
    assert parse_mapping('{"A/b": "C", "D": ""}') == {"A/b": "C", "D": ""}
    for bad in ("[]", "{", '{"a": 1}', '{"a": "b", "a": "c"}'):
        with pytest.raises(UsageError, match="--transform_name_mapping"):
            parse_mapping(bad)
