"""``headrace dlq replay`` on archives, from the command line: the dry run's proof, shards, the ledger, damage."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from fakes.bench import Workbench
from fakes.cli import ROOT, headrace
from fakes.runs import Run, letters_in

FIXES = """
fixes:
  - when: {reason: wrong_type, feature: x}
    cast: {x: float}
  - when: {reason: missing_feature, feature: w}
    default: {w: elm}
"""


@pytest.fixture(scope="module")
def committed(tmp_path_factory, rows, row_schema):
    """A committed run whose dead letters are: 30 with x as a string, 20 without w, 5 that are no JSON."""
    bench = Workbench(tmp_path_factory.mktemp("committed"))
    wrong = [json.dumps({"id": n, "x": f"{n}.5", "w": "fir"}).encode() for n in range(1000, 1030)]
    missing = [json.dumps({"id": n, "x": 1.0}).encode() for n in range(2000, 2020)]
    source = bench.write("rows.jsonl", [*rows(100), *wrong, *missing, *([b'{"id": broken}'] * 5)])
    bench.good_run(source, schema=row_schema)
    return bench


@pytest.fixture
def dead(bench, committed):
    """A copy of that run, for one test."""
    shutil.copytree(committed.folder, bench.folder, dirs_exist_ok=True)
    return bench


def fixed(bench):
    return bench.write("fixes.yaml", FIXES.encode())


def parts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_proves_a_fix_and_touches_nothing(dead, row_schema, transform):
    before = parts(dead.dead)
    done = headrace("dlq", "replay", dead.dead, "--schema", row_schema, "--transform", transform, "--json")
    assert done.code == 0, done.err
    plain = done.json
    assert (plain["selected"], plain["would_pass"], plain["would_fail"]) == (55, 0, 55)
    done = headrace(
        *("dlq", "replay", dead.dead, "--fix", fixed(dead), "--schema", row_schema, "--transform", transform, "--json")
    )
    proof = done.json
    assert (proof["would_pass"], proof["would_fail"], proof["repaired"]) == (50, 5, 50)
    failure = proof["failures"][0]
    assert (failure["reason"], failure["feature"], failure["count"]) == ("invalid_json", None, 5)
    assert len(failure["example"]["dlq_id"]) == 64
    assert parts(dead.dead) == before
    said = headrace("dlq", "replay", dead.dead, "--fix", fixed(dead), "--schema", row_schema)
    assert "dry run: nothing was sent. 55 dead letters read, 55 selected" in said.out
    assert "5  invalid_json: the row is not JSON" in said.out


def test_a_dry_run_names_the_feature_that_would_be_at_fault(dead, row_schema):
    done = headrace("dlq", "replay", dead.dead, "--reason", "missing_feature", "--schema", row_schema, "--json")
    assert done.json["failures"][0]["feature"] == "w"


def to_shards(bench, schema, *words):
    return headrace(
        *("dlq", "replay", bench.dead, "--fix", fixed(bench), "--schema", schema, "--to_shards", bench.output),
        *("--execute", "--json", *words),
    )


def test_repaired_rows_become_shards_once_and_what_fails_again_keeps_its_id(dead, row_schema):
    first = {one["dlq_id"]: one for one in letters_in(dead.dead)}
    done = to_shards(dead, row_schema, "--replay_id", "one")
    assert done.code == 0, done.err
    counts = done.json["counts"]
    assert (counts["replayed"], counts["repaired"], counts["parked"]) == (55, 50, 0)
    run = Run(dead.output, dead.dead, "one")
    assert sorted(run.column("id")) == [*range(1000, 1030), *range(2000, 2020)]
    assert dict(zip(run.column("id"), run.column("x"), strict=True))[1007] == 1007.5
    again = run.letters()
    assert len(again) == 5
    for one in again:
        assert one["dlq_attempt"] == 1
        assert one["payload"] == first[one["dlq_id"]]["payload"]
    second = to_shards(dead, row_schema, "--replay_id", "two", "--attempt", 0)
    assert second.json["counts"]["already_done"] == 55
    assert second.json["counts"]["replayed"] == 0
    assert not Run(dead.output, dead.dead, "two").committed


def test_a_replay_in_which_all_fail_again_ends_and_after_three_the_letters_are_parked(dead, row_schema):
    broken = ("--reason", "invalid_json")
    for attempt in range(3):
        done = to_shards(dead, row_schema, "--replay_id", f"r{attempt}", *broken)
        assert done.code == 3, done.err  # the batch run had no row that it could write
        report = json.loads((dead.dead / "_replay" / "reports" / f"r{attempt}.json").read_bytes())
        assert report["counts"]["replayed"] == 5, attempt
        assert report["counts"]["already_done"] == 5 * attempt
    done = to_shards(dead, row_schema, "--replay_id", "last", *broken)
    assert done.code == 0
    counts = done.json["counts"]
    assert (counts["replayed"], counts["parked"], counts["already_done"]) == (0, 5, 15)
    assert len(counts["parked_ids"]) == 5
    parked = letters_in(dead.dead / "_replay" / "parked")
    assert {one["dlq_id"] for one in parked} == set(counts["parked_ids"])
    assert {one["payload"] for one in parked} == {b'{"id": broken}'}
    assert headrace("dlq", "summary", dead.dead / "_replay" / "parked", "--json").json["by_attempt"] == {"3": 5}
    assert to_shards(dead, row_schema, "--replay_id", "after", *broken).json["counts"]["already_done"] == 20


def test_the_report_says_who_when_what_and_what_came_of_it(dead, row_schema):
    to_shards(dead, row_schema, "--replay_id", "one", "--by", "night shift", "--reason", "wrong_type", "--limit", 7)
    report = json.loads((dead.dead / "_replay" / "reports" / "one.json").read_bytes())
    assert report["by"] == "night shift"
    assert report["started"] <= report["finished"]
    assert report["filters"] == {"reason": ["wrong_type"]}
    assert report["limit"] == 7
    assert len(report["fix_file"]["sha256"]) == 64
    assert report["counts"]["replayed"] == 7
    assert report["source"] == [str(dead.dead)]


def test_archives_never_change_and_what_replays_wrote_is_not_read(dead, row_schema):
    archives = {name: data for name, data in parts(dead.dead).items() if name.endswith(".avro")}
    to_shards(dead, row_schema, "--replay_id", "one")
    after = parts(dead.dead)
    assert {name: after[name] for name in archives} == archives
    summary = headrace("dlq", "summary", dead.dead, "--json").json
    assert summary["dead_letters"] == 55 + 5  # and those that failed again, which the batch run archived


def test_the_good_part_of_a_damaged_archive_is_replayed_and_the_damage_is_told(dead, row_schema):
    archive = next(dead.dead.rglob("task-*.avro"))
    other = archive.with_name("task-99999.avro")
    other.write_bytes(archive.read_bytes()[:-10])
    done = to_shards(dead, row_schema, "--replay_id", "one")
    assert done.code == 3
    assert done.json["counts"]["damaged_parts"] == 1
    assert done.json["counts"]["damage"][0]["archive"].endswith("task-99999.avro")
    assert done.json["counts"]["replayed"] == 55


def replayed_ids(dead: Path) -> list[str]:
    """Every id in every ``done`` entry of the ledger."""
    ids = []
    for path in sorted((dead / "_replay" / "ledger").rglob("*.jsonl")):
        head, *letters = map(json.loads, path.read_text().splitlines())
        if head["entry"] == "done":
            ids += [one["dlq_id"] for one in letters]
    return ids


def sent_rows(dead: Path) -> Counter[bytes]:
    found = (dead / "_replay" / "rows").glob("replay=*/*.jsonl")
    return Counter(line for path in found for line in path.read_bytes().splitlines())


def test_two_replays_at_once_send_each_letter_once(dead, row_schema):
    def work(number):
        words = ("--replay_id", f"r{number}", "--rate", 200, "--reason", "wrong_type", "--reason", "missing_feature")
        codes.append(to_shards(dead, row_schema, *words).code)

    codes: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(replayed_ids(dead.dead)) == len(set(replayed_ids(dead.dead))) == 50
    assert max(sent_rows(dead.dead).values()) == 1
    assert len(sent_rows(dead.dead)) == 50


@pytest.mark.slow
def test_a_replay_that_is_killed_is_finished_by_the_next_and_loses_nothing(dead, row_schema):
    words = ("dlq", "replay", dead.dead, "--fix", fixed(dead), "--schema", row_schema, "--to_shards", dead.output)
    command = [sys.executable, "-m", "pipeline.main", *map(str, words), "--execute", "--replay_id=one", "--rate=8"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 120
    while sum(sent_rows(dead.dead).values()) < 6 and time.monotonic() < limit:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert 6 <= sum(sent_rows(dead.dead).values()) < 55
    assert not (dead.dead / "_replay" / "reports").exists()
    done = to_shards(dead, row_schema, "--replay_id", "one")
    assert done.code == 0, done.err
    ids = replayed_ids(dead.dead)
    assert len(ids) == len(set(ids)) == 55
    run = Run(dead.output, dead.dead, "one")
    assert set(run.column("id")) == {*range(1000, 1030), *range(2000, 2020)}
    assert sum(Counter(run.column("id")).values()) - 50 <= 8  # at most the batch that was on its way


def test_one_ledger_counts_however_the_archive_is_named(dead, row_schema, monkeypatch):
    to_shards(dead, row_schema, "--replay_id", "one")
    monkeypatch.chdir(dead.folder)
    (dead.folder / "link").symlink_to(dead.dead)
    archive = next(path for path in dead.dead.rglob("task-*.avro") if "run=r" in str(path))
    for name in ("dead", "./dead/run=r", "dead/**/*.avro", archive, "link", f"{dead.dead}/../dead"):
        done = headrace(
            *("dlq", "replay", name, "--attempt", 0, "--schema", row_schema, "--to_shards", dead.output),
            *("--execute", "--json"),
        )
        assert done.code == 0, done.err
        assert (done.json["counts"]["already_done"], done.json["counts"]["replayed"]) == (55, 0), name


def test_force_warns_and_sends_again(dead, row_schema):
    to_shards(dead, row_schema, "--replay_id", "one", "--reason", "wrong_type")
    done = to_shards(dead, row_schema, "--replay_id", "two", "--reason", "wrong_type", "--force")
    assert "consumers get them twice" in done.err
    assert (done.json["counts"]["replayed"], done.json["counts"]["forced"]) == (30, 30)


def test_a_fix_module_from_the_command_line(dead, row_schema):
    module = dead.write("fix.py", b"def fix(payload, attributes):\n    return (b'{' in payload and None), attributes\n")
    done = headrace("dlq", "replay", dead.dead, "--fix_module", f"{module}:fix", "--json")
    assert done.json["left"] == {
        "the fix module must give bytes, and a dict of attributes whose names and values are text": 55
    }
    module.write_text("def fix(payload, attributes):\n    return None\n")
    assert headrace("dlq", "replay", dead.dead, "--fix_module", f"{module}:fix", "--json").json["would_be_parked"] == 55


def test_what_a_fix_module_prints_does_not_mix_with_the_json(dead, row_schema):
    module = dead.write(
        "fix.py", b"print('loaded')\ndef fix(payload, attributes):\n    print('fixed')\n    return None\n"
    )
    done = headrace("dlq", "replay", dead.dead, "--fix_module", f"{module}:fix", "--json")
    assert done.code == 0, done.err
    assert done.json["would_be_parked"] == 55
    assert "loaded" in done.err
    assert to_shards(dead, row_schema, "--fix_module", f"{module}:fix").json["counts"]["parked"] == 55


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--execute",), "say where repaired letters go"),
        (("--execute", "--dry_run", "--to", "projects/p/topics/t"), "--execute or --dry_run"),
        (("--to", "projects/p/topics/t", "--to_shards", "x"), "--to or --to_shards"),
        (("--to", "t"), "is no topic"),
        (("--to_shards", "x"), "give --schema"),
        (("--transform", "x"), "--transform needs --schema"),
        (("--senders", "9"), "1 to 8"),
        (("--senders", "2", "--limit", "5"), "--senders 1"),
        (("--since", "soon"), "is no time"),
        (("--attribute", "x"), "name=value"),
        (("--ids", "nowhere.txt"), "no id file nowhere.txt"),
        (("--fix", "nowhere.yaml"), "no fix file nowhere.yaml"),
        (("--fix_module", "x.py"), "path.py:function"),
        (("--claim_lease", "0"), "at least 1s"),
        (("--rate", "1e-300"), "--rate must be at least 0.01"),
        (("--rate", "nan"), "not a number above 0"),
        (("--max_attempts", "0"), "at least 1"),
        (("--exceute",), "did you mean --execute"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(dead, words, says):
    before = parts(dead.dead)
    done = headrace("dlq", "replay", dead.dead, *words)
    assert done.code == 2
    assert says in done.err
    assert parts(dead.dead) == before


def test_archives_of_two_folders_need_one_ledger_to_be_named(dead, row_schema, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(dead.dead, other)
    done = headrace("dlq", "replay", dead.dead, other)
    assert done.code == 2
    assert "--ledger" in done.err
    assert headrace("dlq", "replay", dead.dead, other, "--ledger", dead.dead, "--json").json["already_done"] == 55


def test_rows_of_a_table_are_named_for_what_they_are(bench, row_schema):
    source = bench.write("rows.csv", [b"id,x,w", b"1,2.5,fir", b"x,2.5,fir"])
    bench.good_run(source, schema=row_schema)
    done = headrace("dlq", "replay", bench.dead, "--schema", row_schema, "--json")
    assert "a fix module can make a JSON object of it" in done.json["failures"][0]["example"]["message"]
    module = bench.write(
        "fix.py",
        b"import json\n\ndef fix(payload, attributes):\n    _, x, w = payload.decode().split(',')\n"
        b"    return json.dumps({'id': 7, 'x': float(x), 'w': w}).encode(), attributes\n",
    )
    words = ("dlq", "replay", bench.dead, "--schema", row_schema, "--to_shards", bench.output, "--execute", "--json")
    assert next(iter(headrace(*words).json["counts"]["left"])).startswith("a row of a CSV")
    assert headrace(*words, "--fix_module", f"{module}:fix", "--replay_id", "fixed").json["counts"]["replayed"] == 1
    assert Run(bench.output, bench.dead, "fixed").column("id") == [7]


def test_export_from_the_command_line(dead):
    done = headrace("dlq", "export", dead.dead, "--format", "csv", "--reason", "wrong_type")
    assert done.code == 0
    assert len(done.out.splitlines()) == 31
    target = dead.folder / "letters.jsonl"
    said = headrace("dlq", "export", dead.dead, "--output", target, "--limit", 3)
    assert said.out == f"3 dead letters written to {target}\n"
    assert len(target.read_text().splitlines()) == 3
    ids = [json.loads(line)["dlq_id"] for line in target.read_text().splitlines()]
    assert headrace("dlq", "summary", dead.dead, "--ids", ",".join(ids), "--json").json["dead_letters"] == 3
