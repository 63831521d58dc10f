"""Writes templates/<name>/metadata.json from the options of the commands that the templates run."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.options.template import TEMPLATES, metadata

FOLDER = Path(__file__).resolve().parent.parent / "templates"

if __name__ == "__main__":
    for template in TEMPLATES:
        path = FOLDER / template.name / "metadata.json"
        path.write_text(json.dumps(metadata(template), indent=2) + "\n")
        print(path.relative_to(FOLDER.parent))
