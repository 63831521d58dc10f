"""Machine types, the memory of an SDK process on them, and what a resize makes of a launch spec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import RefusedError, UsageError
from pipeline.ops.launch_spec import LaunchSpec
from pipeline.ops.machines import FAMILIES, ONE_PROCESS, bigger, fit, machine, threads_that_fit
from pipeline.ops.resizing import Wish, plan_resize, threads_of

ALL = [
    f"{family}-{shape}-{size}"
    for family, shapes in FAMILIES.items()
    for shape, (_, sizes) in shapes.items()
    for size in sizes
]


def spec(**environment) -> LaunchSpec:
    return LaunchSpec("gs://b/t.json", "p", "r", "j", environment={"staging_location": "gs://b/s", **environment})


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_gb"),
    [
        ("n1-standard-2", 2, 7.5),
        ("n1-highmem-4", 4, 26),
        ("n2-standard-4", 4, 16),
        ("n2-highmem-4", 4, 32),
        ("n2-highmem-128", 128, 864),
        ("n2d-standard-224", 224, 896),
        ("e2-highmem-16", 16, 128),
        ("c3-highmem-22", 22, 176),
        ("c3-highcpu-4", 4, 8),
        ("custom-4-16384", 4, 16),
        ("n2-custom-6-49152", 6, 48),
        ("n2-custom-2-65536-ext", 2, 64),
    ],
)
def test_machine_types_are_known(name, vcpus, memory_gb):
    found = machine(name)
    assert (found.vcpus, found.memory_gb) == (vcpus, memory_gb)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("n2-highmem-5", r"there is no machine type 'n2-highmem-5'; n2 has .*n2-highmem-\{2,4,8"),
        ("n2", "there is no machine type"),
        ("z9-standard-4", "known families: c2,"),
        ("e2-medium", "shares its CPU"),
        ("n2-highmem-004", "there is no"),
        ("", "not in the table"),
    ],
)
def test_machine_types_that_do_not_exist_are_told_with_those_that_do(name, said):
    with pytest.raises(UsageError, match=said):
        machine(name)


def test_memory_is_counted_by_process_and_thread():
    four = fit("n2-standard-4", threads=None, one_process=False)
    assert (four.processes, four.threads, four.process_gb) == (4, 12, 4)
    assert str(four) == ("n2-standard-4: 4 vCPU, 16 GB; 4 SDK processes of 4 GB, 12 threads each, 341 MB a thread")
    assert fit("n2-standard-16", threads=None, one_process=False).process_gb == four.process_gb
    assert fit("n2-standard-4", threads=4, one_process=True).thread_gb == 4


def test_bigger_means_more_memory_a_vcpu():
    assert bigger("n2-standard-4") == "n2-highmem-4"
    assert bigger("n2-highcpu-4") == "n2-standard-4"
    assert bigger("n2-highmem-4") is None
    assert bigger("n1-standard-1") is None
    assert bigger("custom-4-16384") is None


@given(st.sampled_from(ALL))
def test_law_bigger_gives_a_process_more_and_ends(name):
    seen = [name]
    while (found := bigger(seen[-1])) is not None:
        assert machine(found).vcpus == machine(name).vcpus
        assert machine(found).memory_gb > machine(seen[-1]).memory_gb
        seen.append(found)
    assert len(seen) <= 3


@given(st.sampled_from(ALL), st.sampled_from(ALL), st.integers(1, 24), st.booleans(), st.booleans())
def test_law_no_thread_gets_less_unless_there_is_only_one(before, after, threads, one, other):
    old, new = fit(before, threads=threads, one_process=one), fit(after, threads=threads, one_process=other)
    count = threads_that_fit(old, new)
    assert 1 <= count <= threads
    assert count == 1 or new.process_gb / count >= old.thread_gb - 1e-6


@given(st.sampled_from(ALL), st.sampled_from(ALL))
def test_law_less_memory_a_process_is_refused_and_nothing_else_is(before, after):
    old, new = (fit(name, threads=None, one_process=False).process_gb for name in (before, after))
    wish = Wish(machine_type=after)
    if new < old - 1e-9:
        with pytest.raises(RefusedError, match="less than the"):
            plan_resize(spec(machine_type=before), wish)
    else:
        assert plan_resize(spec(machine_type=before), wish).spec.environment["machine_type"] == after
    assert plan_resize(spec(machine_type=before), wish, force=True).after.machine.name == after


def test_a_resize_keeps_all_but_the_machine():
    before = spec(machine_type="n2-standard-4", max_workers=5, additional_experiments=["x=1"], network="n")
    resize = plan_resize(before, Wish(machine_type="n2-highmem-8"))
    assert {**resize.spec.environment, "machine_type": "n2-standard-4"} == dict(before.environment)
    said = "\n".join(resize.explain())
    assert "memory of a process: 4 GB -> 8 GB (2x); of a thread: 2x" in said
    assert "more vCPUs mean more processes, not more memory for each" in said


def test_threads_one_process_and_worker_limits_go_into_the_replacement():
    before = spec(
        machine_type="n2-standard-4",
        additional_pipeline_options=["--number_of_worker_harness_threads=6", "other=1"],
        additional_experiments=["min_num_workers=2"],
    )
    wish = Wish(threads=3, one_process=True, min_workers=4, max_workers=8, utilization=0.5)
    environment = plan_resize(before, wish).spec.environment
    assert environment["additional_pipeline_options"] == ["other=1", "number_of_worker_harness_threads=3"]
    assert environment["additional_experiments"] == [
        *(ONE_PROCESS, "min_num_workers=4", "worker_utilization_hint=0.5"),
    ]
    assert environment["max_workers"] == 8
    assert plan_resize(before, wish).after.process_gb == 16


def test_what_the_job_runs_on_counts_where_the_spec_is_silent():
    assert plan_resize(spec(), Wish(bigger=True), running_machine="n2-standard-2").after.machine.name == "n2-highmem-2"
    assert plan_resize(spec(), Wish(bigger=True)).before.machine.name == "n1-standard-2"


def test_where_nothing_is_bigger_it_says_what_helps():
    with pytest.raises(RefusedError, match="--one_process: one SDK process with all 32 GB"):
        plan_resize(spec(machine_type="n2-highmem-4"), Wish(bigger=True))


def test_threads_must_be_a_number():
    assert threads_of(spec()) is None
    with pytest.raises(UsageError, match="is not a number of threads"):
        threads_of(spec(additional_pipeline_options=["number_of_worker_harness_threads=x"]))
