"""The templates' parameters and the program's options are one thing: held to each other, both ways."""

from __future__ import annotations

import argparse
import json
import re

import pytest
from fakes.cli import ROOT
from google.cloud.dataflow_v1beta3 import ParameterType
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.main import parse
from pipeline.options import kinds
from pipeline.options.template import ON_YOUR_MACHINE, TEMPLATES, arguments, metadata, template_named

BATCH = template_named("batch")
each_template = pytest.mark.parametrize("template", TEMPLATES, ids=[template.name for template in TEMPLATES])


def parameters(template) -> dict[str, dict]:
    document = json.loads((ROOT / "templates" / template.name / "metadata.json").read_text())
    return {parameter["name"]: parameter for parameter in document["parameters"]}


@each_template
def test_the_file_is_what_the_options_say(template):
    """Mended by: python scripts/write_metadata.py."""
    path = ROOT / "templates" / template.name / "metadata.json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(metadata(template)))


@each_template
def test_every_option_is_a_parameter_and_every_parameter_an_option(template):
    options = {option.name for option in template.command.options} - ON_YOUR_MACHINE
    positional = {template.command.positional[0]} if template.command.positional else set()
    assert set(parameters(template)) == options | positional


@each_template
def test_every_parameter_says_what_the_service_and_a_person_need(template):
    types = {kind.name for kind in ParameterType}
    for name, parameter in parameters(template).items():
        assert parameter["paramType"] in types, name
        assert parameter["label"].strip(), name
        assert len(parameter["helpText"]) > 15, name
        assert parameter["groupName"] != "Other", name
        assert re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
        assert (parameter["paramType"] == "ENUM") == ("enumOptions" in parameter), name
        for regex in parameter.get("regexes", []):
            assert regex.startswith("^")
            assert regex.endswith("$")
            if "defaultValue" in parameter:
                assert re.search(regex, parameter["defaultValue"]), name


@each_template
def test_a_job_started_with_only_what_is_required_has_the_defaults_that_the_form_shows(template):
    required = [f"--{name}={_sample(p)}" for name, p in parameters(template).items() if not p["isOptional"]]
    shown = [f"--{name}={p['defaultValue']}" for name, p in parameters(template).items() if "defaultValue" in p]
    plain, _ = parse(arguments(template, required))
    filled, _ = parse(arguments(template, [*required, *shown]))
    assert vars(plain) | {"parser": None} == vars(filled) | {"parser": None}


def _sample(parameter: dict) -> str:
    kind = parameter["paramType"]
    samples = {"PUBSUB_SUBSCRIPTION": "projects/proj/subscriptions/s", "PUBSUB_TOPIC": "projects/proj/topics/t"}
    return samples.get(kind, "gs://bucket/x")


NUMBERS = st.one_of(
    st.integers(0, 2**70).map(str),
    st.floats(0, 1e30).map(str),
    st.floats(0, 1).map(str),
    st.sampled_from(["0", "1", "00", ".5", "5.", "1e-3", "+1", "-1", "1_000", "", " 1", "1 ", "nan", "inf", "٣"]),
    st.text(alphabet="0123456789.eE+-_ kKmMgGiIbB", max_size=8),
)
SIZES = st.builds(
    "{}{}{}".format,
    NUMBERS,
    st.sampled_from(["", " "]),
    st.sampled_from(["", "B", "b", "KB", "kib", "MiB", "GB", "TB", "M", "ms", "s", "m", "h", "d"]),
)


@pytest.mark.parametrize(
    "kind", [kinds.count, kinds.seed_number, kinds.positive, kinds.fraction, kinds.byte_size, kinds.duration]
)
@given(text=st.one_of(NUMBERS, SIZES))
def test_regexes_accept_what_the_program_accepts(kind, text):
    found = [p["regexes"][0] for o, p in _of_kind(kind)]
    accepted = True
    try:
        kind(text)
    except argparse.ArgumentTypeError:
        accepted = False
    for regex in found:
        if accepted:
            assert re.search(regex, text)


def _of_kind(kind):
    return [
        (option, parameters(template)[option.name])
        for template in TEMPLATES
        for option in template.options
        if option.type is kind and "regexes" in parameters(template)[option.name]
    ]


ONLY_PYTHON = re.compile(r"\(\?(?!:)|\\[1-9AZzGbBdDsSwWpPuUxXk]|[*+?}]\+|\[\[|\(\?#")


@each_template
def test_regexes_are_written_in_what_the_service_and_the_console_read_too(template):
    """RE2 and JavaScript: no looking around, no backward references, no classes that mean other characters there."""
    for name, parameter in parameters(template).items():
        for regex in parameter.get("regexes", []):
            assert not ONLY_PYTHON.search(regex), (name, regex)


@each_template
def test_regexes_let_lists_and_defaults_pass(template):
    for option in template.options:
        for regex in parameters(template)[option.name].get("regexes", []):
            assert not option.many, f"{option.name}: a JSON list does not match {regex}"


def test_regexes_refuse_what_makes_no_sense():
    batch = parameters(BATCH)
    for name, text in [
        ("schema", "/local/schema.pbtxt"),
        ("output", "s3://bucket/x"),
        ("layout", "columns"),
        ("min_shards", "-1"),
        ("target_shard_bytes", "big"),
        ("max_rejected_fraction", "10%"),
        ("csv_multiline", "yes"),
    ]:
        assert not re.search(batch[name]["regexes"][0], text), name


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)


@given(text=TEXTS.filter(lambda text: text.strip() and not text.lstrip().startswith("[")))
def test_a_value_reaches_the_program_unchanged(text):
    words = arguments(BATCH, [f"--input={text}", f"--schema={text}", "--output=gs://b/o", "--dead_letters=gs://b/d"])
    parsed, _ = parse(words)
    assert (parsed.input, parsed.schema) == ([text], text)


@given(texts=st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4))
def test_a_json_list_gives_each_of_its_values(texts):
    common = ["--schema=gs://b/s", "--output=gs://b/o", "--dead_letters=gs://b/d"]
    parsed, _ = parse(arguments(BATCH, [f"--input={json.dumps(texts)}", *common]))
    assert parsed.input == texts


@pytest.mark.parametrize(
    ("value", "words"),
    [("true", ["--csv_multiline"]), ("True", ["--csv_multiline"]), ("false", []), ("", [])],
)
def test_switches_are_true_or_false(value, words):
    assert arguments(BATCH, [f"--csv_multiline={value}"]) == ["run", *words]


def test_beams_own_options_pass_as_they_are_and_empty_parameters_fall_away():
    given_words = ["--runner=DataflowRunner", "--labels=a=b,c=d", "--features=", "--streaming"]
    assert arguments(BATCH, given_words) == ["run", "--runner=DataflowRunner", "--labels=a=b,c=d", "--streaming"]


def test_workers_run_the_image_that_launches_them():
    assert arguments(BATCH, [], image="r/i:1")[-1] == "--sdk_container_image=r/i:1"
    named = ["--sdk_container_image=other"]
    assert arguments(BATCH, named, image="r/i:1") == ["run", *named]


@pytest.mark.parametrize(
    ("given_word", "said"),
    [
        ("--csv_multiline=yes", "true or false"),
        ('--input=["a",1]', "JSON list"),
        ('--input=["a"', "JSON list"),
        ("--input=" + "[" * 100_000, "JSON list"),
    ],
)
def test_what_no_parameter_can_mean_is_refused(given_word, said):
    with pytest.raises(UsageError, match=said):
        arguments(BATCH, [given_word])
