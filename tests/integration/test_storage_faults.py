"""Storage that fails at every point of a run, and bundles that are tried again: the result is always the same."""

from __future__ import annotations

import contextlib
import shutil

import pytest
from fakes.bench import Workbench
from fakes.faults import StorageFault, faulty_storage
from fakes.runs import Run, assert_whole, files_below

from pipeline.core.errors import UsageError
from pipeline.core.verify import verify_run
from pipeline.transforms import files


@pytest.fixture(scope="module")
def stage(tmp_path_factory, row_schema, rows, transform) -> Stage:
    """An output with two committed runs, and a third input that is to replace the second run."""
    return Stage(tmp_path_factory.mktemp("faults"), row_schema, rows, transform)


class Stage:
    def __init__(self, folder, schema, rows, transform):
        from fakes.serial import carry_out, prepare

        self.carry_out, self.prepare = carry_out, prepare
        self.schema, self.transform = schema, transform
        self.folder, self.base = folder, folder / "base"
        before = Workbench(self.base)
        old = before.write("old.jsonl", [*rows(90, start=500), b"no"])
        lines = [line for n in range(40) for line in (*rows(2, start=2 * n), b'{"id":%d.5}' % n)]
        self.source = before.write("new.jsonl", lines)
        for run_id in ("other", "r"):  # in part the same names of shards as the run that comes, and other bytes
            self.run_on(before, old, "--splits=train=0.75,eval=0.15,old=0.1", run_id=run_id)
        self.replaced = Run(before.output, before.dead, "r").shard_bytes()
        self.reference = self.fresh("reference")
        self.run_on(self.reference)
        self.result = state(self.reference)

    def fresh(self, name: str) -> Workbench:
        """A copy of the output as it was before the third run."""
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.base, target)
        return Workbench(target)

    def job(self, bench, source=None, *words, run_id="r"):
        where = bench.flags(source or self.source, schema=self.schema, run_id=run_id)
        return self.prepare(
            [*where, "--splits=train=0.8,eval=0.2", "--transform", self.transform, "--target_shard_bytes=2500", *words]
        )

    def run_on(self, bench, source=None, *words, run_id="r", attempt=None):
        job = self.job(bench, source, *words, run_id=run_id)
        self.carry_out(job, attempt) if attempt else self.carry_out(job)


def state(bench: Workbench) -> dict[str, object]:
    """All that readers and operators see: both runs, LATEST, the dead letters, and nothing else."""
    found: dict[str, object] = {"latest": Run(bench.output, bench.dead, "r").latest}
    for run_id in ("other", "r"):
        run = Run(bench.output, bench.dead, run_id)
        found[run_id] = run.contents()
        letters = [{key: value for key, value in letter.items() if key != "dlq_failed_at"} for letter in run.letters()]
        found[f"{run_id} letters"] = letters
        found[f"{run_id} archives"] = [path.name for path in files_below(bench.dead / f"run={run_id}")]
    strange = [
        p
        for p in files_below(bench.output)
        if p.relative_to(bench.output).parts[0] not in ("run=r", "run=other", "LATEST")
    ]
    assert strange == []
    return found


def test_the_reference_is_a_whole_run(stage):
    run = Run(stage.reference.output, stage.reference.dead, "r")
    assert_whole(run)
    assert len(run.letters()) == 40
    written = run.shard_bytes()
    common = written.keys() & stage.replaced.keys()
    assert {name.split("/")[0] for name in common} == {"train", "eval"}, "some are overwritten"
    assert all(written[name] != stage.replaced[name] for name in common)
    assert len(written) < len(stage.replaced), "some have to go"
    assert run.manifest["previous_run_id"] == "other"


EVERY = pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])


@EVERY
def test_a_fault_at_any_point_is_healed_by_running_again(stage, stride):
    at, points = 1 - stride, []
    while True:
        at += stride
        bench = stage.fresh("faulty")
        # A schema that cannot be read is bad usage.
        with faulty_storage(at) as storage, contextlib.suppress(StorageFault, UsageError):
            stage.run_on(bench)
        if not storage.fired:
            break
        points.append(storage.fired)
        untouched(stage, bench)
        stage.run_on(bench)
        assert state(bench) == stage.result, storage.fired
    assert state(bench) == stage.result
    assert len(points) > 100 / stride


def untouched(stage, bench: Workbench) -> None:
    """After a failed run the other run is as it was, and the failed one is committed and whole, or no run at all."""
    other = Run(bench.output, bench.dead, "other")
    assert other.contents() == stage.result["other"]
    latest = Run(bench.output, bench.dead, other.latest)
    assert latest.committed, "LATEST names a committed run, whatever happened"
    run = Run(bench.output, bench.dead, "r")
    if run.committed:
        assert verify_run(str(run.folder), files.list_folder, files.open_read).ok


def test_every_bundle_tried_twice_gives_the_same(stage):
    from fakes.serial import twice

    bench = stage.fresh("twice")
    stage.run_on(bench, attempt=twice)
    assert state(bench) == stage.result


@EVERY
def test_every_bundle_tried_again_after_a_fault_at_any_point_of_it_gives_the_same(stage, stride):
    """What a runner does: only the bundle that failed is tried again, the job goes on."""
    at = 1 - stride
    while True:
        at += stride
        bench = stage.fresh("retried")
        job = stage.job(bench)

        with faulty_storage(at) as storage:

            def attempt(process, *elements):
                try:
                    return list(process(*elements))
                except StorageFault:
                    return list(process(*elements))

            try:
                stage.carry_out(job, attempt)
            except StorageFault:
                assert "delete_folder" in storage.fired, "tidying up after the commit"
        if not storage.fired:
            break
        shutil.rmtree(job.build.staging, ignore_errors=True)
        assert state(bench) == stage.result, storage.fired
    assert at > 100


@pytest.mark.parametrize("at", [5, 60, pytest.param("all", marks=pytest.mark.slow)])
def test_the_command_line_reports_a_storage_fault_and_heals(stage, at):
    words = ("--splits=train=0.8,eval=0.2", "--transform", stage.transform, "--target_shard_bytes=2500")
    count = 0
    while at == "all" or count == 0:
        count = count + 23 if at == "all" else at
        bench = stage.fresh("cli")
        with faulty_storage(count) as storage:
            done, _ = bench.run(stage.source, *words, schema=stage.schema)
        if not storage.fired:
            assert (done.code, state(bench)) == (0, stage.result)
            break
        assert done.code in (1, 2), done.err
        assert "storage fault" in done.err
        assert "Traceback" not in done.err
        untouched(stage, bench)
        assert bench.run(stage.source, *words, schema=stage.schema)[0].code == 0
        assert state(bench) == stage.result, storage.fired
