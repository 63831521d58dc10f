"""``headrace schema validate``: what is wrong with a schema file, by line, and what is not judged."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from pipeline.core.errors import UsageError
from pipeline.core.schema import ignored_rules, load_schema, validate_schema
from pipeline.preflight import read_text


def execute(arguments: Namespace, beam_arguments: Sequence[str]) -> int:
    """Print all findings and notes; 0 for a schema that can be used, 2 for one that cannot."""
    origin = arguments.schema or "schema.pbtxt"
    text = read_text(origin, "schema")
    errors = validate_schema(text, origin)
    result = {"ok": not errors, "errors": errors, "notes": []}
    if not errors:
        schema = load_schema(text, environment=arguments.environment, origin=origin)
        result |= {"notes": ignored_rules(schema.proto), "features": len(schema.features)}
        result["fingerprint"] = schema.fingerprint
    if arguments.json:
        print(json.dumps(result))
    else:
        _print(origin, result)
    return UsageError.exit_code if errors else 0


def _print(origin: str, result: dict[str, object]) -> None:
    for kind in ("errors", "notes"):
        for line in result[kind]:  # type: ignore[attr-defined]
            print(f"{kind[:-1]}: {line}")
    if result["ok"]:
        print(f"{origin}: good, {result['features']} features, fingerprint {str(result['fingerprint'])[:12]}")
