"""The launch spec: read strictly, errors by line, what stands there is what is sent; the record of a launch."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timezone

import pytest
from fakes.graphs import graph, streaming
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.ops.launch_record import LaunchRecord, Provenance, find_record, from_json, new_launch_id
from pipeline.ops.launch_spec import MAX_NAME, LaunchSpec, read_spec
from pipeline.ops.requests import check_name, launch_request
from pipeline.ops.template_file import read_template
from pipeline.ops.updating import parallel_name

GOOD = """\
# A streaming job.
template: gs://b1b/templates/streaming.json
project: my-project
region: europe-west1
job_name: flights
parameters:
  input_subscription: projects/my-project/subscriptions/flights
  filter: a=1,b='x',"y"
  rate: 0.10
  on: yes
environment:
  machine_type: n2-highmem-4
  num_workers: 1
  max_workers: 10
  service_account_email: worker@my-project.iam.gserviceaccount.com
  ip_configuration: private
  enable_streaming_engine: true
  additional_experiments: [min_num_workers=2]
  additional_user_labels: {team: data}
  staging_location: gs://b1b/staging
update:
  strategy: drain
  transform_name_mapping: {Old/Step: New}
"""
START = GOOD[: GOOD.index("environment:")]


def test_a_spec_is_read():
    spec = read_spec(GOOD, "launch.yaml")
    assert (spec.project, spec.region, spec.job_name, spec.pipeline) == (
        *("my-project", "europe-west1", "flights"),
        "streaming",
    )
    assert spec.parameters["filter"] == "a=1,b='x',\"y\""
    assert (spec.parameters["rate"], spec.parameters["on"]) == ("0.10", "yes")
    assert spec.environment["ip_configuration"] == "WORKER_IP_PRIVATE"
    assert spec.update.transform_name_mapping == {"Old/Step": "New"}
    assert (spec.update.strategy, spec.staging_location) == ("drain", "gs://b1b/staging")


def test_the_request_is_what_the_service_takes():
    body = launch_request(read_spec(GOOD, "launch.yaml"), launch_id="l1", update=True, mapping={"A": "B"})
    launch = body["launchParameter"]
    assert launch["jobName"] == "flights"
    assert launch["containerSpecGcsPath"] == "gs://b1b/templates/streaming.json"
    assert launch["environment"]["additionalUserLabels"] == {"team": "data", "headrace_launch": "l1"}
    assert launch["environment"]["additionalExperiments"] == ["min_num_workers=2"]
    assert launch["environment"]["serviceAccountEmail"].startswith("worker@")
    assert (launch["update"], launch["transformNameMappings"]) == (True, {"A": "B"})
    plain = launch_request(read_spec(GOOD, "launch.yaml"), launch_id="l1", options=("x",))["launchParameter"]
    assert "update" not in plain
    assert plain["environment"]["additionalExperiments"] == ["min_num_workers=2", "x"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("region: europe-west1\n", "", r"launch\.yaml:2: 'region' is missing"),
        ("region: europe-west1", "regoin: x", r"launch\.yaml:4: unknown key 'regoin' in the launch spec; did you mean"),
        ("europe-west1", "Europe", r"launch\.yaml:4: 'region' must be a region such as"),
        ("gs://b1b/templates", "/templates", r"launch\.yaml:2: 'template' must be gs://"),
        ("job_name: flights", "job_name: Flights_1", r"launch\.yaml:5: 'job_name' must be a job name: lower-case"),
        ("project: my-project", "project: 7", r"launch\.yaml:3: 'project' must be a project id, not '7'"),
        ("num_workers: 1", "num_workers: many", r"launch\.yaml:13: 'environment\.num_workers' must be a whole number"),
        ("num_workers: 1", "num_workers: 11", r"launch\.yaml:13: num_workers is more than max_workers"),
        ("num_workers: 1", "num_wrokers: 1", r"launch\.yaml:13: unknown key 'num_wrokers' .* 'num_workers'\?"),
        ("private", "secret", r"launch\.yaml:16: 'environment\.ip_configuration' must be one of public, private"),
        ("engine: true", "engine: maybe", r"launch\.yaml:17: .* must be true or false"),
        ("[min_num_workers=2]", "x", r"launch\.yaml:18: .* must be a list of texts"),
        ("{team: data}", "{Team: data}", r"launch\.yaml:19: label 'Team': keys and values are"),
        ("{team: data}", "{headrace_launch: x}", r"launch\.yaml:19: label 'headrace_launch' is set by the launch"),
        ("gs://b1b/staging", "/tmp", r"launch\.yaml:20: 'environment\.staging_location' must be a gs:// folder"),
        ("  staging_location: gs://b1b/staging\n", "", r"launch\.yaml:11: 'environment\.staging_location' is missing"),
        ("strategy: drain", "strategy: hope", r"launch\.yaml:22: 'update\.strategy' must be one of in_place"),
        ("{Old/Step: New}", "{Old/Step: 1}", r"launch\.yaml:23: 'Old/Step' must map to the step's new name"),
        ("rate: 0.10", "rate:", r"launch\.yaml:9: parameter 'rate' has no value"),
        ("rate: 0.10", "rate: [1, 2]", r"launch\.yaml:9: parameter 'rate' must be one text"),
        ("rate: 0.10", "filter: b", r"launch\.yaml:9: 'filter' is given twice"),
        ("rate: 0.10", "rate: !!python/object:os.system x", r"launch\.yaml:9: "),
        ("region: europe-west1", "region: [", r"launch\.yaml:\d+: this is not valid YAML"),
    ],
)
def test_what_is_out_of_place_is_told_by_line(old: str, new: str, said: str):
    assert old in GOOD
    with pytest.raises(UsageError, match=said):
        read_spec(GOOD.replace(old, new), "launch.yaml")


@pytest.mark.parametrize("text", ["", "[]", "a", "null", "- template: x"])
def test_what_is_no_spec_at_all_is_told(text):
    with pytest.raises(UsageError, match="launch"):
        read_spec(text, "launch.yaml")


TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\x85\u2028\u2029\ufeff"), max_size=20
)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), TEXTS, max_size=4))
def test_law_parameters_are_the_texts_that_were_written(parameters):
    text = GOOD[: GOOD.index("parameters:")] + f"parameters: {json.dumps(parameters, ensure_ascii=False)}\n"
    text += "environment: {staging_location: gs://b1b/s}\n"
    spec = read_spec(text, "launch.yaml")
    assert spec.parameters == parameters
    assert launch_request(spec, launch_id="l")["launchParameter"]["parameters"] == parameters


NO_SWITCHES = {"name": "a", "urn": "u", "windowing": "w"}


def record(spec: LaunchSpec) -> LaunchRecord:
    provenance = Provenance("0.1.0", "abc", "image@sha256:1", "sha256:1", graph(*streaming()), "f" * 64, None)
    request = launch_request(spec, launch_id="l1")
    return LaunchRecord("l1", "launch", spec, request, provenance, "me@here", "2026-11-30T00:00:00+00:00")


def test_a_record_comes_back_as_it_was():
    made = record(read_spec(GOOD, "launch.yaml")).with_job("2026-1")
    back = from_json(made.to_json(), "r.json")
    assert back.to_json() == made.to_json()
    assert (back.job_id, back.provenance) == ("2026-1", made.provenance)
    assert back.spec.environment == made.spec.environment
    assert made.uri == "gs://b1b/staging/headrace-launches/flights/l1.json"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format 2; this program reads 1"),
        ({"spec": {}}, r"r\.json: spec:1: 'template' is missing"),
        ({"graph": {"sdk": "1", "steps": []}}, r"graph\.format: expected an integer"),
        ({"graph": {"format": 2, "sdk": "1", "steps": []}}, r"its graph has format 2; this program reads 1"),
        ({"graph": {"format": 1, "sdk": "1", "steps": [{"name": "a"}]}}, r"steps\[0\]\.urn: expected a string"),
        ({"graph": {"format": 1, "sdk": "1", "steps": [NO_SWITCHES]}}, r"steps\[0\]\.stateful: expected true or false"),
        ({"code": {"version": 1}}, r"code\.version: expected a string"),
    ],
)
def test_a_damaged_record_is_named(change, said):
    value = json.loads(record(read_spec(GOOD, "launch.yaml")).to_json()) | change
    with pytest.raises(UsageError, match=said):
        from_json(json.dumps(value).encode(), "r.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"template": "/etc/passwd"}, "'template' must be gs://"),
        ({"template": 1}, "'template' must be gs://"),
        ({"pipeline": "other"}, "'pipeline' must be one of"),
        ({"parameters": {"rate": 1}}, "parameter 'rate' must be a text"),
        ({"parameters": []}, "'parameters' must hold names and values"),
        ({"environment": {"staging_location": "gs://b1b/s", "machine_type": 4}}, "machine_type' must be a text"),
        ({"environment": {"staging_location": "gs://b1b/s", "additional_experiments": "x"}}, "must be a list of texts"),
        ({"environment": {}}, "staging_location' is missing"),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_the_spec_of_a_record_that_was_tampered_with_is_refused(change, said):
    value = json.loads(record(read_spec(GOOD, "launch.yaml")).to_json())
    value["spec"] |= change
    with pytest.raises(UsageError, match=said):
        from_json(json.dumps(value).encode(), "r.json")


@pytest.mark.parametrize("change", [{"launch_id": "l2"}, {"spec": {"job_name": "payments"}}])
def test_a_record_that_is_another_launchs_is_refused(change):
    value = json.loads(record(read_spec(GOOD, "launch.yaml")).to_json())
    value |= {**change, "spec": value["spec"] | change.get("spec", {})}
    with pytest.raises(UsageError, match="it was copied or changed"):
        find_record(lambda _: json.dumps(value).encode(), ["gs://b1b/s"], job_name="flights", launch_id="l1")


@pytest.mark.parametrize("value", ["[a]", "{a: b}", "true", "7", "''"])
@pytest.mark.parametrize("name", ["ip_configuration", "flexrs_goal", "machine_type", "num_workers"])
def test_values_of_any_kind_are_told_and_do_not_break_the_reading(name, value):
    if (name, value) == ("num_workers", "7"):
        return
    with pytest.raises(UsageError, match=rf"launch\.yaml:\d+: 'environment\.{name}'"):
        read_spec(f"{START}environment:\n  staging_location: gs://b1b/s\n  {name}: {value}\n", "launch.yaml")


def test_characters_that_json_escapes_in_two_halves_are_read_and_halves_alone_refused():
    spec = read_spec(GOOD.replace("rate: 0.10", r'rate: "\ud83d\ude00"'), "launch.yaml")
    assert spec.parameters["rate"] == "\U0001f600"
    with pytest.raises(UsageError, match=r"launch\.yaml:9: 'parameters\.rate' holds half a character"):
        read_spec(GOOD.replace("rate: 0.10", r'rate: "\ud83d"'), "launch.yaml")
    with pytest.raises(UsageError, match="holds half a character"):
        read_spec(GOOD.replace("[min_num_workers=2]", r'["\udc00"]'), "launch.yaml")


@pytest.mark.parametrize("name", ["0", "false", "[]", "x\u0301", "'-a'"])
def test_a_new_job_name_is_checked_whatever_it_is(name):
    with pytest.raises(UsageError, match=r"update\.new_job_name"):
        read_spec(f"{START}environment: {{staging_location: gs://b1b/s}}\nupdate: {{new_job_name: {name}}}\n", "l.yaml")


def test_a_bomb_of_aliases_and_a_huge_file_are_refused_at_once():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(UsageError, match="too large or too deep"):
        read_spec(GOOD + bomb, "launch.yaml")
    with pytest.raises(UsageError, match="this is no launch spec"):
        read_spec(GOOD + "#" * 2_000_000, "launch.yaml")
    with pytest.raises(UsageError, match="launch"):
        read_spec(GOOD + "x: " + "[" * 5000, "launch.yaml")


def test_names_that_are_as_long_as_may_be_stay_so_with_a_suffix():
    longest = "a" * MAX_NAME
    for made in (check_name(longest), parallel_name(longest), parallel_name(f"{longest[:-3]}-p9")):
        assert len(made) == MAX_NAME
        read_spec(GOOD.replace("job_name: flights", f"job_name: {made}"), "launch.yaml")
    assert [parallel_name(name) for name in ("x", "x-p2", "x-p9", "x-p")] == ["x-p2", "x-p3", "x-p10", "x-p-p2"]


def test_a_record_is_looked_for_in_each_folder():
    made = record(read_spec(GOOD, "launch.yaml"))
    there = {"gs://b/x/headrace-launches/flights/l1.json": made.to_json()}

    def read(uri: str) -> bytes:
        if uri not in there:
            raise FileNotFoundError(uri)
        return there[uri]

    assert find_record(read, ["gs://b/y", "gs://b/x/"], job_name="flights", launch_id="l1") is not None
    assert find_record(read, ["gs://b/y"], job_name="flights", launch_id="l1") is None


def test_launch_ids_are_label_values_that_sort_by_time():
    ids = [new_launch_id(datetime(2026, 11, day, tzinfo=timezone.utc), "ab" * 16) for day in (9, 10)]
    assert ids == ["20261109t000000-abababab", "20261110t000000-abababab"]


TEMPLATE = {
    "image": "i@sha256:1",
    "metadata": {
        "streaming": True,
        "parameters": [
            {"name": "window", "helpText": "How long.", "isOptional": True, "regexes": ["^[0-9]+s$"]},
            {"name": "input", "helpText": "What to read.", "regexes": ["("]},
        ],
    },
}


def test_parameters_are_checked_against_the_template():
    template = read_template(json.dumps(TEMPLATE).encode(), "gs://b/t.json")
    assert (template.image_digest, template.streaming) == ("sha256:1", True)
    template.check({"input": "x", "window": "5s"}, spec="launch.yaml")
    with pytest.raises(UsageError) as caught:
        template.check({"windw": "5s", "window": "5"}, spec="launch.yaml")
    said = str(caught.value)
    assert "unknown parameter 'windw'; did you mean 'window'?" in said
    assert "parameter 'window' is '5', which does not match ^[0-9]+s$" in said
    assert "parameter 'input' is missing: What to read." in said


def test_a_value_matches_as_the_service_matches_and_not_as_python_does():
    template = read_template(json.dumps(TEMPLATE).encode(), "gs://b/t.json")
    with pytest.raises(UsageError, match="does not match"):
        template.check({"input": "x", "window": "5s\n"}, spec="launch.yaml")


@pytest.mark.parametrize("garbage", [5, "x", None, {"a": 1}, [5], [None]])
def test_a_template_with_garbage_in_a_parameter_is_still_judged(garbage):
    metadata = {"parameters": [{"name": "a", "regexes": garbage}, garbage, {"name": garbage, "isOptional": True}]}
    template = read_template(json.dumps({"image": "i", "metadata": metadata}).encode(), "gs://b/t.json")
    with contextlib.suppress(UsageError):
        template.check({"a": "1"}, spec="launch.yaml")
    assert read_template(json.dumps({"image": "i", "metadata": garbage}).encode(), "t").parameters == {}


def test_a_file_that_is_no_template_is_named():
    for bad in (b"{}", b"x", b'{"image": 1}'):
        with pytest.raises(UsageError, match=r"gs://b/t\.json"):
            read_template(bad, "gs://b/t.json")
