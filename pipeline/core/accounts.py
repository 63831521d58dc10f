"""The accounts of a run: read = written + dead-lettered, proven task by task before anything is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pipeline.core.errors import HeadraceError
from pipeline.core.manifest import Counts
from pipeline.core.records import ShardPart, Task, TaskReport

_SHOWN = 5


def balance(
    reports: Iterable[TaskReport],
    *,
    planned: Sequence[Task],
    dead_letters_written: int,
    shuffled_parts: Sequence[ShardPart] | None = None,
) -> Counts:
    """The counts of a run, out of the reports of all its tasks.

    ``shuffled_parts`` are the parts of a global shuffle, which belong to no one task: they are judged by their sum.

    Raises HeadraceError with the exact numbers where a task is missing, unknown or reported twice, where it read
    other bytes than planned, where its rows do not add up, or where the archive holds fewer or more dead
    letters than rows were refused.
    """
    ordered = sorted(reports, key=lambda report: report.task)
    rejected = sum(report.rows_rejected for report in ordered)
    parts = [part for report in ordered for part in report.parts] if shuffled_parts is None else shuffled_parts
    problems = [*_task_problems(ordered, planned), *_row_problems(ordered, planned)]
    problems += _part_problems(ordered) if shuffled_parts is None else _shuffle_problems(ordered, parts)
    if dead_letters_written != rejected:
        problems.append(f"{rejected} rows were refused, but {dead_letters_written} dead letters were written")
    if problems:
        more = f" ... and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise HeadraceError(
            f"the accounts do not balance, nothing was committed: {'; '.join(problems[:_SHOWN])}{more}. "
            "No row may be lost: this is a bug or a file that changed while it was read; run again, and report it "
            "if it happens again"
        )
    return _counts(ordered, parts)


def _task_problems(reports: Sequence[TaskReport], planned: Sequence[Task]) -> Iterator[str]:
    times = Counter(report.task for report in reports)
    known = {task.index for task in planned}
    if missing := sorted(known - set(times)):
        yield f"no report of {len(missing)} of {len(known)} tasks, the first is task {missing[0]}"
    for task, count in sorted(times.items()):
        if task not in known:
            yield f"a report of task {task}, which was not planned"
        elif count > 1:
            yield f"{count} reports of task {task}"


def _row_problems(reports: Sequence[TaskReport], planned: Sequence[Task]) -> Iterator[str]:
    bytes_planned = {task.index: task.size_bytes for task in planned}
    for report in reports:
        task, expected = f"task {report.task}", bytes_planned.get(report.task, report.bytes_read)
        if report.bytes_read != expected:
            yield f"{task}: {report.bytes_read} bytes read of {expected} planned"
        if report.rows_read != report.rows_written + report.rows_rejected:
            yield (
                f"{task}: {report.rows_read} rows read, but {report.rows_written} written + "
                f"{report.rows_rejected} dead-lettered = {report.rows_written + report.rows_rejected}"
            )


def _part_problems(reports: Sequence[TaskReport]) -> Iterator[str]:
    for report in reports:
        in_parts = sum(part.rows for part in report.parts)
        if in_parts != report.rows_written:
            yield f"task {report.task}: {report.rows_written} rows written, but its parts hold {in_parts}"


def _shuffle_problems(reports: Sequence[TaskReport], parts: Sequence[ShardPart]) -> Iterator[str]:
    written, in_parts = sum(report.rows_written for report in reports), sum(part.rows for part in parts)
    if in_parts != written:
        yield f"{written} rows went into the shuffle, but the parts that came out hold {in_parts}"
    for place, times in Counter((part.split, part.task, part.sequence) for part in parts).items():
        if times > 1:
            yield f"part {place[2]} of bucket {place[1]} of split {place[0]} is there {times} times"


def _counts(reports: Sequence[TaskReport], parts: Sequence[ShardPart]) -> Counts:
    by_split: Counter[str] = Counter()
    by_reason: Counter[str] = Counter()
    for report in reports:
        by_reason.update(dict(report.rejected))
    for part in parts:
        by_split[part.split] += part.rows
    return Counts(
        read=sum(report.rows_read for report in reports),
        written=sum(report.rows_written for report in reports),
        written_by_split=tuple(sorted(by_split.items())),
        dead_lettered_by_reason=tuple(sorted(by_reason.items())),
        blank=sum(report.rows_blank for report in reports),
    )
