"""Laws of inference: what was read passes what was inferred, in any chunks; and the choices that are documented."""

import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.core.decoding import DecoderSettings, make_decoder
from pipeline.core.decoding.csv_options import CsvOptions
from pipeline.core.errors import UsageError
from pipeline.core.inference import InferenceResult, SchemaInference, infer_from_files, infer_schema
from pipeline.core.inference_rules import MAX_KEYS
from pipeline.core.records import InputFile
from pipeline.core.schema import load_schema, schema_text, validate_schema

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([1e300, 0.5, 3.0, -0.0, 2.0**53 + 2, 1e17, 1e25, "", "x", "é"])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.just({"a": [1]})
# Columns of one kind with a few strangers, and keys that come and go.
ROW = st.fixed_dictionaries(
    {},
    optional={
        "mixed": VALUES,
        "int": st.integers(0, 9) | st.just(4.0),
        "num": st.floats(-10, 10) | st.integers(-1, 1),
        "flag": st.booleans(),
        "text": st.sampled_from(["a", "b"]),
        "pair": st.lists(st.integers(0, 3), min_size=2, max_size=2),
        "tags": st.lists(st.text(max_size=2), max_size=3) | st.text(max_size=2),
    },
)
GARBAGE = st.sampled_from(
    [
        b"null",
        b"[1]",
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"\xff",
        b'{"a":"\\ud800"}',
        b'{"a":' + b"[" * 70 + b"]" * 70 + b"}",
    ]
)
LINES = st.lists(ROW.map(lambda row: json.dumps(row, ensure_ascii=False).encode()) | GARBAGE, min_size=1, max_size=40)


class Files:
    """A few files in memory."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = {f"file-{index}": content for index, content in enumerate(contents)}
        self.files = [InputFile(uri, len(content)) for uri, content in self.contents.items()]

    def open(self, uri: str) -> io.BytesIO:
        return io.BytesIO(self.contents[uri])

    def infer(self, name: str, **options: object) -> InferenceResult:
        return infer_from_files(self.files, name, self.open, **options)  # type: ignore[arg-type]

    def rejections(self, name: str, text: str, decoder_settings: DecoderSettings | None = None) -> int:
        decoder = make_decoder(name, load_schema(text), decoder_settings)
        count = 0
        for file in self.files:
            for split in decoder.splits(file, 1 << 20, self.open):
                count += sum(len(decoder.decode_rows(block).rejections) for block in decoder.blocks(split, self.open))
        return count


def jsonl(*rows: Mapping[str, object]) -> Files:
    return Files(b"\n".join(json.dumps(row).encode() for row in rows))


def feature(rows: Sequence[object]) -> str:
    """The inferred rules of one key ``k`` that held these values, as text; absent where the value is ``...``."""
    schema = infer_schema([{} if value is ... else {"k": value} for value in rows])
    return " ".join(schema_text(schema).split()[4:-1])


@given(LINES)
@settings(max_examples=150, deadline=None)
def test_what_was_read_passes_unless_a_warning_counts_it(lines: list[bytes]) -> None:
    files = Files(b"\n".join(lines))
    try:
        result = files.infer("jsonl")
    except UsageError:  # no feature is left: see below
        return
    assert result.rows + result.refused == len(lines)
    assert validate_schema(result.text) == []
    rejected = files.rejections("jsonl", result.text)
    assert rejected <= result.refused + result.doubtful
    assert result.warnings or not rejected


CELL = st.sampled_from(
    ["", "NA", "1", "-2", "3.0", "0.5", "1e3", "true", "FALSE", "0", "007", "x", "é", "inf", "9" * 25]
)
COLUMNS = st.sampled_from(
    [CELL, st.sampled_from(["1", "2.0", ""]), st.sampled_from(["true", "0"]), st.sampled_from(["0.5", "3", "1e3"])]
)


@given(st.data(), st.lists(COLUMNS, min_size=1, max_size=4), st.integers(1, 30), st.booleans())
@settings(max_examples=100, deadline=None)
def test_csv_that_was_read_passes_too(
    data: st.DataObject, columns: list[st.SearchStrategy[str]], count: int, quote: bool
) -> None:
    rows = [[data.draw(column) for column in columns] for _ in range(count)]
    header = ",".join(f"c{index}" for index in range(len(columns))) + ",last"
    body = [",".join([*(f'"{cell}"' if quote and cell != "" else cell for cell in row), "z"]) for row in rows]
    files = Files("\n".join([header, *body]).encode())
    result = files.infer("csv")
    assert (result.rows, result.refused) == (count, 0)
    assert files.rejections("csv", result.text) <= result.doubtful


@given(st.lists(ROW, max_size=30), st.lists(st.integers(0, 30), max_size=3))
@settings(max_examples=60, deadline=None)
def test_chunks_and_merging_change_nothing(rows: list[dict[str, object]], cuts: list[int]) -> None:
    rows = [*rows, {"last": 1}]
    whole, merged, chunked = SchemaInference(), SchemaInference(), SchemaInference()
    whole.add_rows(rows)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, end in pairwise(edges):
        chunked.add_rows(rows[start:end])
        part = SchemaInference()
        part.add_rows(rows[start:end])
        merged = merged.merge(part)
    assert merged.result() == whole.result() == chunked.result()
    assert merged.result().text == whole.result().text


REQUIRED = "presence { min_fraction: 1.0 min_count: 1 }"
OPTIONAL = "presence { min_count: 1 }"
ONE = "value_count { min: 1 max: 1 }"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.0, -3], f"type: INT {REQUIRED} shape {{ }}"),
        ([517.0, 2.0], f"type: INT {REQUIRED} shape {{ }}"),
        ([1, 2.5], f"type: FLOAT {REQUIRED} shape {{ }}"),
        ([1, None], f"{ONE} type: INT {OPTIONAL}"),
        ([1, ...], f"{ONE} type: INT {OPTIONAL}"),
        ([True, False], f"type: INT bool_domain {{ }} {REQUIRED} shape {{ }}"),
        ([True, 0, 1.0], f"type: INT bool_domain {{ }} {REQUIRED} shape {{ }}"),
        ([True, 5, 6], f"type: INT {REQUIRED} shape {{ }}"),
        (["a", "1"], f"type: BYTES {REQUIRED} shape {{ }}"),
        ([[1, 2], [3, 4]], f"type: INT {REQUIRED} shape {{ dim {{ size: 2 }} }}"),
        ([[0.5, 2], None], f"value_count {{ min: 2 max: 2 }} type: FLOAT {OPTIONAL}"),
        ([[1], [2]], f"type: INT {REQUIRED} shape {{ }}"),
        ([["a"], ["b", "c"]], f"value_count {{ min: 1 }} type: BYTES {REQUIRED}"),
        ([["a", "b", "c"], ["b", "c"]], f"value_count {{ min: 1 }} type: BYTES {REQUIRED}"),
        ([[1], []], f"value_count {{ min: 0 }} type: INT {REQUIRED}"),
        ([2**63, 2**64 - 1], f"type: FLOAT {REQUIRED} shape {{ }}"),
        ([2**63, 1, 2], f"type: INT {REQUIRED} shape {{ }}"),
        ([2**63, 1, 2.5], f"type: FLOAT {REQUIRED} shape {{ }}"),
    ],
)
def test_the_documented_choices(values: list[object], expected: str) -> None:
    assert feature(values) == expected


def test_the_type_of_most_rows_is_taken_and_the_rest_are_told() -> None:
    result = jsonl(*[{"k": 1}] * 5, {"k": "x"}, {"k": 1.5}, {"k": {"a": 1}}).infer("jsonl")
    assert result.schema.feature[0].type == schema_pb2.FLOAT
    assert result.doubtful == 2
    (warning,) = result.warnings
    assert "2 of 8 rows" in warning
    assert "nested value, string" in warning


def test_a_rare_list_does_not_make_a_column_a_list() -> None:
    result = jsonl(*[{"k": 1}] * 200, {"k": [1, 2]}).infer("jsonl")
    assert result.schema.feature[0].HasField("shape")
    assert result.doubtful == 1
    assert "lists of 2" in result.warnings[0]


def test_domains_need_few_values_seen_often() -> None:
    def domain(values: list[str]) -> list[str]:
        (found,) = infer_schema([{"k": value} for value in values]).feature
        return list(found.string_domain.value)

    assert domain(["b", "a"] * 50) == ["a", "b"]
    assert domain(["b", "a"] * 49) == []
    assert domain([f"{number:02}" for number in range(30)] * 50) == [f"{number:02}" for number in range(30)]
    assert domain([str(number) for number in range(31)] * 50) == []


def test_keys_that_no_feature_can_hold_are_left_out_and_told() -> None:
    result = jsonl({"ok": 1, "null": None, "object": {"x": 1}, "": 2, "bell\x07": 3, "lists": [[1]]}).infer("jsonl")
    assert [found.name for found in result.schema.feature] == ["ok"]
    assert len(result.warnings) == 5
    assert all("left out" in warning for warning in result.warnings)
    assert result.text.isprintable() or "\x07" not in result.text


@pytest.mark.parametrize("rows", [[], [{}], [{"a": None}], [{"a": {}}]])
def test_nothing_to_infer_from_is_refused(rows: list[dict[str, object]]) -> None:
    with pytest.raises(UsageError, match="no feature can be inferred"):
        infer_schema(rows)


def test_keys_that_are_data_are_refused_in_bounded_memory() -> None:
    with pytest.raises(UsageError, match="data used as keys"):
        infer_schema({f"user-{number}": 1} for number in range(MAX_KEYS + 1))


def test_features_keep_the_order_of_first_appearance() -> None:
    schema = infer_schema([{"b": 1}, {"c": 1, "a": 1}, {"a": 1, "b": 1}])
    assert [found.name for found in schema.feature] == ["b", "c", "a"]


def test_an_integer_that_float64_would_round_is_seen_exactly() -> None:
    files = Files(b'{"k":9007199254740993.5}\n{"k":1}')
    result = files.infer("jsonl")
    assert result.schema.feature[0].type == schema_pb2.FLOAT
    assert files.rejections("jsonl", result.text) == 0


def test_rows_are_dealt_evenly_over_the_files() -> None:
    contents = [b'{"a":1}\n' * 2, b'{"b":1}\n' * 100, b'{"c":"x"}\n' * 100]
    result = Files(*contents).infer("jsonl", max_rows=42)
    assert result.rows == 42
    assert [found.name for found in result.schema.feature] == ["a", "b", "c"]


def test_unreadable_rows_are_shown_with_their_place() -> None:
    result = Files(b'{"a":1}\n{"a":1,\n{"a":1,"a":2}\n').infer("jsonl")
    assert (result.rows, result.refused) == (1, 2)
    assert result.warnings[0].startswith("2 rows cannot be read, whatever the schema, such as file-0#offset=8: ")


def test_csv_dialects_null_tokens_and_ragged_rows() -> None:
    options = CsvOptions(delimiter=";", null_tokens=("-",), header=("n", "zip", "t", "none"))
    files = Files(b'1;00501;"-";-\n-;94105;x;-\n1;2\n')
    result = files.infer("csv", settings=DecoderSettings(csv=options))
    by_name = {found.name: found for found in result.schema.feature}
    assert list(by_name) == ["n", "zip", "t"]
    assert by_name["n"].type == schema_pb2.INT
    assert by_name["n"].presence.min_fraction == 0
    assert by_name["zip"].type == schema_pb2.BYTES
    assert by_name["t"].presence.min_fraction == 1
    assert (result.rows, result.refused) == (2, 1)


def test_tsv_is_csv_with_tabs() -> None:
    assert Files(b"a\tb\n1\tx\n").infer("tsv").schema.feature[1].type == schema_pb2.BYTES


def test_a_mostly_numeric_csv_column_is_numeric() -> None:
    body = b"1\n" * 200 + b"oops\n"
    result = Files(b"a\n" + body).infer("csv")
    assert result.schema.feature[0].type == schema_pb2.INT
    assert "1 of 201 rows" in result.warnings[0]
    assert Files(b"a\n" + b"1\n" * 50 + b"oops\n").infer("csv").schema.feature[0].type == schema_pb2.BYTES


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(UsageError, match="parquet"):
        Files(b"x").infer("parquet")


def test_large_rows_are_counted_as_refused() -> None:
    files = Files(b'{"a":1}\n{"a":"' + b"x" * 500 + b'"}\n')
    result = files.infer("jsonl", settings=DecoderSettings(max_record_bytes=100))
    assert (result.rows, result.refused) == (1, 1)


def test_the_header_of_the_file_is_a_comment() -> None:
    text = jsonl({"a": 1}, {"a": "line\nbreak"}).infer("jsonl").text
    comment = text.split("\n\n")[0]
    assert all(line.startswith("#") for line in comment.split("\n"))
    assert load_schema(text).features[0].name == "a"


def test_merged_parts_remember_each_others_strings() -> None:
    parts = [SchemaInference(), SchemaInference()]
    for part, value in zip(parts, "ab", strict=True):
        part.add_rows([{"k": value}] * 50)
    (found,) = parts[0].merge(parts[1]).result().schema.feature
    assert list(found.string_domain.value) == ["a", "b"]
