"""Repairs: each operation, what it refuses and why; what is not touched keeps every byte; bad files told by line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_replay.casts import CASTS, Unapplied
from dlq_replay.fix_file import digest_of, parse_fixes
from dlq_replay.fix_module import FixModule, split_module
from dlq_replay.fixes import BadFixModule, Repair
from dlq_replay.json_members import NotJson, joined, members_of
from pipeline.core.errors import UsageError
from pipeline.core.reasons import Reason
from tests.dlq_replay.helpers import letter

BIG = "9" * 6000


def repaired(fixes, payload, **options):
    text = "fixes:\n" + "".join(f"  - {fix}\n" for fix in fixes)
    made = letter(0, payload=payload, **options)
    before = made.payload, made.attributes
    result = Repair(parse_fixes(text, "fixes.yaml"))(made, payload)
    assert (made.payload, made.attributes) == before
    return result


@pytest.mark.parametrize(
    ("fix", "payload", "expected"),
    [
        ("rename: {old: new}", '{"old":1.0,"b":2}', '{"new":1.0,"b":2}'),
        ("cast: {a: int}", '{"a":"007"}', '{"a":7}'),
        ("cast: {a: int}", '{"a":" +12 "}', '{"a":12}'),
        ("cast: {a: int}", '{"a":"-0"}', '{"a":0}'),
        ("cast: {a: int}", '{"a":-5.000}', '{"a":-5}'),
        ("cast: {a: int}", f'{{"a":"{BIG}"}}', f'{{"a":{BIG}}}'),
        ("cast: {a: int}", '{"a":true}', '{"a":1}'),
        ("cast: {a: int}", '{"a":["1",2,"3.0"]}', '{"a":[1,2,3]}'),
        ("cast: {a: float}", '{"a":"1.50"}', '{"a":1.50}'),
        ("cast: {a: float}", '{"a":".5"}', '{"a":0.5}'),
        ("cast: {a: float}", '{"a":7}', '{"a":7}'),
        ("cast: {a: string}", '{"a":1.50,"b":1}', '{"a":"1.50","b":1}'),
        ("cast: {a: bool}", '{"a":"Yes"}', '{"a":true}'),
        ("default: {a: 0}", "{}", '{"a":0}'),
        ("default: {a: x}", '{"a":null,"b":1}', '{"a":"x","b":1}'),
        ("default: {a: [1, 2.5]}", '{"b":1}', '{"b":1,"a":[1,2.5]}'),
        ("drop: [a, z]", '{"a":1,"b":2,"a":3}', '{"b":2}'),
        ("keep: {a: first}", '{"a":1,"b":2,"a":3}', '{"a":1,"b":2}'),
        ("keep: {a: last}", '{"a":1,"b":2,"a":3}', '{"b":2,"a":3}'),
        ("replace: {d: {Red: red}}", '{"d":"Red"}', '{"d":"red"}'),
        ("replace: {d: {Red: red}}", '{"d":"R\\u0065d"}', '{"d":"red"}'),
        ("replace: {d: {Red: red}}", '{"d":["Red","blue"]}', '{"d":["red","blue"]}'),
        ("replace: {d: [{from: -1, to: null}]}", '{"d":-1}', '{"d":null}'),
        ("replace: {d: [{from: -1, to: null}]}", '{"d":-10}', '{"d":-10}'),
        (r"regex: {a: {pattern: '^[$]([0-9.]+)$', with: '\1'}}", '{"a":"$12.5"}', '{"a":"12.5"}'),
        ("regex: {a: {pattern: 'é+', with: 'e'}}", '{"a":"caféé"}', '{"a":"cafe"}'),
        ("{cast: {a: int}, rename: {a: b}}", '{"a":"1"}', '{"b":1}'),
    ],
)
def test_each_repair_does_what_it_says(fix, payload, expected):
    result = repaired([fix], payload.encode())
    assert result.payload.decode() == expected
    assert result.unapplied == ()
    assert result.changed is (payload != expected)


@pytest.mark.parametrize(
    ("fix", "payload", "why"),
    [
        ("rename: {a: b}", '{"a":1,"b":2}', "rename a: there is a key of the new name already; drop it first"),
        (
            "rename: {a: b}",
            '{"a":1,"a":2}',
            "rename a: the key is given more than once; say which one counts with keep",
        ),
        ("cast: {a: int}", '{"a":1.5}', "cast a: the value is no whole number"),
        ("cast: {a: int}", '{"a":"+-1"}', "cast a: the value is no whole number"),
        ("cast: {a: int}", '{"a":"1e3"}', "cast a: the value is no whole number"),
        ("cast: {a: int}", '{"a":null}', "cast a: the value is no whole number"),
        ("cast: {a: int}", '{"a":["1","x"]}', "cast a: the value is no whole number"),
        ("cast: {a: float}", '{"a":"nan"}', "cast a: the value is no finite number"),
        ("cast: {a: float}", '{"a":"1_0"}', "cast a: the value is no finite number"),
        ("cast: {a: string}", '{"a":{"b":1}}', "cast a: null or an object cannot become a string"),
        ("cast: {a: bool}", '{"a":2}', "cast a: the value is neither true nor false"),
        ("regex: {a: {pattern: x, with: y}}", '{"a":1}', "regex a: the value is no string"),
        ("regex: {a: {pattern: x, with: y}}", '{"a":"\\ud800"}', "regex a: the string holds a lone surrogate"),
        ("default: {a: 1}", "[1]", "default a: the payload cannot be repaired by key: it is no JSON object"),
        (
            "drop: [a]",
            '{"a":1} x',
            "drop a: the payload cannot be repaired by key: there is more after the JSON object",
        ),
        ("drop: [a]", '{"a":' + "[" * 100_000, "drop a: the payload cannot be repaired by key: it is nested too deep"),
    ],
)
def test_what_cannot_be_done_is_left_alone_and_says_why(fix, payload, why):
    result = repaired([fix], payload.encode())
    assert (result.payload, result.changed, result.unapplied) == (payload.encode(), False, (why,))


def test_a_long_string_is_not_given_to_a_regex_and_no_pattern_can_hang():
    result = repaired(["regex: {a: {pattern: '(a+)+b', with: x}}"], b'{"a":"' + b"a" * 100_001 + b'"}')
    assert result.unapplied == ("regex a: the string is longer than 100,000 characters",)
    result = repaired(["regex: {a: {pattern: '(a+)+b', with: x}}"], b'{"a":"' + b"a" * 100_000 + b'"}')
    assert (result.changed, result.unapplied) == (False, ())  # exponential in a backtracking engine


def test_not_utf8_is_untouched_but_its_attributes_can_be_set():
    result = repaired(["{drop: [a], set_attribute: {team: red}}"], b"\xff{}", attributes={"k": "v"})
    assert result.payload == b"\xff{}"
    assert result.attributes == (("k", "v"), ("team", "red"))
    assert result.changed
    assert result.unapplied == ("drop a: the payload cannot be repaired by key: it is not UTF-8",)


def test_when_names_reasons_and_features_of_one_fault():
    fix = "{when: {reason: [wrong_type, null_feature], feature: a}, drop: [a]}"
    faults = [(Reason.OUT_OF_RANGE, "x"), (Reason.WRONG_TYPE, "a")]
    assert repaired([fix], b'{"a":1}', faults=faults).payload == b"{}"
    assert repaired([fix], b'{"a":1}', faults=[(Reason.WRONG_TYPE, "x"), (Reason.OUT_OF_RANGE, "a")]).payload != b"{}"


KEYS = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["a", "b"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(KEYS, VALUES), max_size=6),
    spaces=st.sampled_from(["", " ", "\n\t"]),
    ascii_only=st.booleans(),
)
def test_members_hold_all_of_an_object_in_order_with_each_values_own_text(pairs, spaces, ascii_only):
    texts = [
        (json.dumps(key, ensure_ascii=ascii_only), json.dumps(value, ensure_ascii=ascii_only)) for key, value in pairs
    ]
    text = "{" + ",".join(f"{spaces}{key}{spaces}:{spaces}{value}{spaces}" for key, value in texts) + "}"
    found = members_of(text.encode("utf-8", "surrogatepass") if not ascii_only else text.encode())
    assert [(one.key, one.written, one.value) for one in found] == [
        (key, written, value) for (key, _), (written, value) in zip(pairs, texts, strict=True)
    ]
    assert members_of(joined(found)) == found


@settings(max_examples=200, deadline=None)
@given(payload=st.binary(max_size=40) | st.text('{}[]":,\\ua10.e-x ', max_size=30).map(str.encode))
def test_members_agree_with_the_json_library_on_what_an_object_is(payload):
    try:
        known = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError):
        known = None
    try:
        keys = {one.key for one in members_of(payload)}
    except NotJson:
        assert not isinstance(known, dict)
    else:
        assert set(known) == keys


@settings(max_examples=200, deadline=None)
@given(value=VALUES, to=st.sampled_from(sorted(CASTS)))
def test_a_cast_gives_json_of_its_kind_loses_nothing_and_is_done_once(value, to):
    try:
        cast = CASTS[to](json.dumps(value))
    except Unapplied:
        return
    made = json.loads(cast)
    assert type(made) in {"int": (int,), "float": (float, int), "string": (str,), "bool": (bool,)}[to]
    assert CASTS[to](cast) == cast
    if type(value) in (int, float) and to in ("int", "float"):
        assert made == value


@settings(max_examples=100, deadline=None)
@given(payload=st.binary(max_size=60), attributes=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3))
def test_nothing_in_a_payload_can_make_a_repair_fail(payload, attributes):
    fixes = ["{rename: {a: b}, cast: {a: int}, default: {c: 1}, drop: [d], regex: {a: {pattern: x, with: y}}}"]
    result = repaired(fixes, payload, attributes=attributes)
    assert result.changed or result.payload == payload


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "fixes.yaml:1: a fix file is one list"),
        ("fixes: []", "fixes.yaml:1: a fix file is one list"),
        ("fixes:\n  - drop: [a]\nother: 1", "fixes.yaml:1: a fix file is one list"),
        ("fixes:\n  - when: {reason: wrong_type}", "fixes.yaml:2: a fix is one or more of: rename, cast"),
        ("fixes:\n  - drop: [a]\n    when: {reason: wrongtype}", "fixes.yaml:3: 'wrongtype' is no reason"),
        ("fixes:\n  - drop: [a]\n    when: {stage: x}", "fixes.yaml:3: 'when' has a reason, a feature"),
        ("fixes:\n  - drop: [a]\n  - dorp: [a]", "fixes.yaml:3: 'dorp' is no repair"),
        ("fixes:\n  - cast: {a: integer}", "fixes.yaml:2: cast to one of int, float"),
        ("fixes:\n  - cast: {a: [int]}", "fixes.yaml:2: cast to one of int, float"),
        ('fixes:\n  - set_attribute: {n: "\\ud800"}', "fixes.yaml:2: an attribute is text that UTF-8 can hold"),
        ('fixes:\n  - drop: [a]\n    when: {reason: "\\e[2J"}', r"fixes.yaml:3: '\\x1b\[2J' is no reason"),
        ("fixes:\n  - default: {a: &a [*a]}", "fixes.yaml:2: .*circle"),
        ("fixes:\n  - cast: {a: int}\n    cast: {b: int}", "fixes.yaml:3: 'cast' is given twice"),
        ("fixes:\n  - default: {a: 1.0e+400}", "fixes.yaml:2: JSON has no such number"),
        (f"fixes:\n  - default: {{a: {'[' * 5000}1{']' * 5000}}}", "fixes.yaml"),
        ("fixes:\n  - rename: {a: a}", "the new name must be a text other than the old one"),
        ("fixes:\n  - drop: []", "write it as drop"),
        ("fixes:\n  - keep: {a: middle}", "keep the first or the last"),
        ("fixes:\n  - replace: {a: b}", "write it as replace"),
        ("fixes:\n  - replace: {a: [{from: 1}]}", "write it as {from: -1, to: null}"),
        ("fixes:\n  - default: {a: .nan}", "JSON has no such number"),
        ("fixes:\n  - regex: {a: {pattern: '(?=x)', with: ''}}", r"invalid perl operator.*no look-around"),
        ("fixes:\n  - regex: {a: {pattern: 'x', with: '\\1'}}", "only has 0 parenthesized"),
        ("fixes:\n  - regex: {a: {pattern: x}}", "a regex has a pattern and 'with'"),
        ("fixes:\n  - set_attribute: {dlq_id: x}", "the attribute 'dlq_id' is reserved"),
        ("fixes:\n  - set_attribute: {googx: x}", "reserved"),
        ("fixes:\n  - set_attribute: {n: 1}", "an attribute is a text"),
        (f"fixes:\n  - set_attribute: {{n: {'é' * 600}}}", "a value 1024"),
        ("fixes:\n  - !!python/object:os.system x", "fixes.yaml:2"),
    ],
)
def test_what_is_wrong_with_a_fix_file_is_told_by_its_line(text, message):
    with pytest.raises(UsageError, match=message):
        parse_fixes(text, "fixes.yaml")


def test_a_digest_names_a_fix_file():
    assert digest_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def module(body, name="fix"):
    return FixModule("fix.py", name, f"def fix(payload, attributes):\n    {body}\n")


def by_module(body, payload=b"x"):
    made = letter(0, payload=payload, attributes={"k": "v"})
    return Repair((), module(body).load())(made, payload)


def test_a_fix_module_repairs_parks_and_is_refused_in_words():
    assert by_module("return payload + b'!', {**attributes, 'n': '1'}").payload == b"x!"
    assert by_module("return payload + b'!', {**attributes, 'n': '1'}").attributes == (("k", "v"), ("n", "1"))
    assert by_module("return None").parked
    assert not by_module("return payload, attributes").changed
    for body, says in (
        ("return payload", "gave bytes, not"),
        ("return 'x', attributes", "must give bytes"),
        ("return payload, {'n': 1}", "names and values are text"),
        ("return payload, None", "names and values are text"),
        ("raise KeyError('x')", "the fix module failed: KeyError"),
        ("raise SystemExit(0)", "the fix module failed: SystemExit"),
        ("raise type('E', (Exception,), {'__str__': None})", "the fix module failed: E: .it cannot be shown"),
        ("return fix(payload, attributes)", "the fix module failed: RecursionError"),
    ):
        with pytest.raises(BadFixModule, match=says):
            by_module(body)
    with pytest.raises(UsageError, match="has no function other"):
        module("return None", "other").load()
    with pytest.raises(UsageError, match="fails on import"):
        FixModule("fix.py", "fix", "import nowhere_at_all").load()


def test_the_module_and_its_function_are_named_together():
    assert split_module("a:b/fix.py:f") == ("a:b/fix.py", "f")
    for wrong in ("fix.py", "fix.py:", ":f", "fix.py:1f"):
        with pytest.raises(UsageError, match=r"path\.py:function"):
            split_module(wrong)
