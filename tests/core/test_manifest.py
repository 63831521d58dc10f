"""The manifest: round trip, deterministic bytes, and a clear refusal of every damaged field."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.core.manifest import Code, Counts, Input, Manifest, ShardEntry
from pipeline.core.names import ShardName
from pipeline.core.records import ShardPart
from pipeline.core.shards import Shard

TEXT = st.text(st.characters(exclude_categories=[]), max_size=12)
COUNT = st.integers(0, 2**70)
CRC = st.integers(0, 2**32 - 1)
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
JSON = st.dictionaries(
    TEXT,
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
        max_leaves=5,
    ),
    max_size=3,
)
TIME = st.sampled_from(["2024-05-01T12:00:00Z", "2024-05-01T12:00:00.123456+02:00"])


@st.composite
def manifests(draw):
    shards, by_split = [], {}
    for split in draw(st.lists(NAME, unique=True, max_size=3)):
        of = draw(st.integers(1, 3))
        for index in range(of):
            rows = draw(st.integers(1, 1000))
            name = str(ShardName(split, index, of))
            shards.append(ShardEntry(name, split, rows, draw(COUNT), draw(COUNT), draw(CRC)))
            by_split[split] = by_split.get(split, 0) + rows
    reasons = draw(st.dictionaries(NAME, st.integers(0, 99), max_size=3))
    written = sum(by_split.values())
    return Manifest(
        run_id=draw(st.sampled_from(["r", "2024-05-01_a.b"])),
        job_name=draw(TEXT),
        job_id=draw(TEXT),
        started=draw(TIME),
        finished=draw(TIME),
        code=Code(draw(TEXT), draw(st.none() | TEXT), draw(st.none() | TEXT)),
        inputs=tuple(draw(st.lists(st.builds(Input, TEXT, COUNT, TEXT, st.none() | CRC), max_size=3))),
        schema_fingerprint=draw(TEXT),
        transform_fingerprint=draw(st.none() | TEXT),
        layout=draw(TEXT),
        feature_spec=draw(JSON),
        compression=draw(TEXT),
        splits=tuple(draw(st.lists(st.tuples(TEXT, st.floats(0, 1)), max_size=3))),
        shards=tuple(shards),
        counts=Counts(
            written + sum(reasons.values()),
            written,
            tuple(sorted(by_split.items())),
            tuple(sorted(reasons.items())),
            draw(COUNT),
        ),
        quality=draw(JSON),
        previous_run_id=draw(st.none() | TEXT),
        options=draw(JSON),
        extra=draw(st.dictionaries(TEXT.map("x_".__add__), st.integers(), max_size=2)),
    )


SAMPLE = Manifest(
    run_id="r1",
    job_name="flights",
    job_id="local",
    started="2024-05-01T12:00:00Z",
    finished="2024-05-01T12:01:00Z",
    code=Code("0.1.0", "abc", None),
    inputs=(Input("in.jsonl", 100, "m1", 0xE3069283),),
    schema_fingerprint="s",
    transform_fingerprint="t",
    layout="rows",
    feature_spec={"a": "int64"},
    compression="",
    splits=(("train", 0.9), ("eval", 0.1)),
    shards=(ShardEntry("train/part-00000-of-00001.tfrecord", "train", 3, 3, 99, 1),),
    counts=Counts(4, 3, (("train", 3),), (("wrong_type", 1),), 2),
    quality={"verdict": "pass"},
    options={"seed": 1},
)


@settings(max_examples=100, deadline=None)
@given(manifest=manifests())
def test_written_and_read_it_is_the_same(manifest):
    data = manifest.to_json()
    again = Manifest.from_json(data)
    assert again == manifest
    assert again.to_json() == data


def test_unknown_fields_of_a_newer_minor_version_are_kept():
    value = json.loads(SAMPLE.to_json()) | {"format_version": "1.7", "novelty": [1]}
    value["counts"]["also_new"] = 1
    again = Manifest.from_json(json.dumps(value).encode())
    assert again.extra == {"novelty": [1]}
    assert json.loads(again.to_json())["format_version"] == "1.7"


def test_a_newer_major_version_is_refused_with_what_to_do():
    value = json.loads(SAMPLE.to_json()) | {"format_version": "2.0"}
    with pytest.raises(UsageError, match=r"format version 2\.0, .* reads 1\.x\. Install"):
        Manifest.from_json(json.dumps(value).encode(), "gs://b/manifest.json")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 100_000, b'{"a":1e999}']
)
def test_what_is_no_json_object_is_refused_by_name(data):
    with pytest.raises(UsageError, match=r"^here/manifest\.json: "):
        Manifest.from_json(data, "here/manifest.json")


def paths(value, before=()):
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*before, key)
        if isinstance(inner, (dict, list)):
            yield from paths(inner, (*before, key))


OPTIONAL = {"previous_run_id", "transform_fingerprint", "git_commit", "image_digest", "dead_lettered", "crc32c"}
FREE = {"feature_spec", "options", "quality"}
EVERY_FIELD = [
    p for p in paths(json.loads(SAMPLE.to_json())) if not (FREE & set(p[:-1])) and not isinstance(p[-1], int)
]


@pytest.mark.parametrize("path", EVERY_FIELD, ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("damage", ["gone", "wrong"])
def test_damage_to_any_field_is_refused_by_its_path(path, damage):
    value = json.loads(SAMPLE.to_json())
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if damage == "gone":
        del holder[path[-1]]
    else:
        holder[path[-1]] = ["wrong"]
    optional = path[-1] in OPTIONAL and path[0] != "shards"
    derived = path[-1] == "dead_lettered"
    entry = path[:-1] in {("counts", "written_by_split"), ("counts", "dead_lettered_by_reason")}
    if derived or (optional and damage == "gone"):
        Manifest.from_json(json.dumps(value).encode())
        return
    with pytest.raises(UsageError) as caught:
        Manifest.from_json(json.dumps(value).encode())
    if not (entry and damage == "gone"):
        assert str(path[-1]) in str(caught.value)
    assert str(caught.value).startswith("manifest.json: ")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": Counts(5, 3, (("train", 3),), (("wrong_type", 1),), 2)}, "5 rows read, but 3 written"),
        ({"counts": Counts(4, 3, (("eval", 3),), (("wrong_type", 1),), 2)}, "rows by split"),
        ({"shards": SAMPLE.shards * 2}, "named twice"),
        ({"shards": (dataclasses.replace(SAMPLE.shards[0], name="../../x"),)}, "cannot be a shard's name"),
        ({"shards": (dataclasses.replace(SAMPLE.shards[0], split="eval"),)}, "said to be of split"),
        ({"started": "yesterday"}, "no RFC 3339 time"),
        ({"run_id": "../x"}, "run id"),
    ],
)
def test_contradictions_are_refused(changes, says):
    with pytest.raises(UsageError, match=says):
        Manifest.from_json(dataclasses.replace(SAMPLE, **changes).to_json())


def test_a_number_too_large_for_json_is_refused():
    data = SAMPLE.to_json().replace(b'"seed": 1', b'"seed": 1e999')
    with pytest.raises(UsageError, match="1e999 is too large"):
        Manifest.from_json(data)


def test_a_hostile_value_is_shown_harmlessly():
    value = json.loads(SAMPLE.to_json()) | {"layout": {"\x1b[31m": "x" * 10_000}}
    with pytest.raises(UsageError) as caught:
        Manifest.from_json(json.dumps(value).encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_the_entry_of_a_planned_shard():
    part = ShardPart("train", 0, 0, "u", 5, 2, 70, 9)
    assert ShardEntry.of(Shard("train", 0, 1, (part,))) == ShardEntry(
        "train/part-00000-of-00001.tfrecord", "train", 5, 2, 70, 9
    )
