"""The examples of --help and of the README: names that the services take, and arguments that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.main import parse
from pipeline.options.commands import COMMANDS

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
NAMED = re.compile(r"projects/([^/\s`'\"]+)/(topics|subscriptions|schemas)/([^/\s`'\"#),;]+)")
PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
ID = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}\*?")  # or a pattern of such names
BUCKET = re.compile(r"gs://([^/\s`'\",]+)")
TEXTS = {" ".join(command.words): command.example for command in COMMANDS} | {"README": README}


def is_placeholder(name: str) -> bool:
    return re.fullmatch(r"<[a-z ]+>|\$\w+|\{\w+\}|…|\.\.\.", name) is not None


@pytest.mark.parametrize("where", TEXTS)
def test_names_in_examples_are_names_that_the_services_take(where):
    wrong = [
        found[0]
        for found in NAMED.finditer(TEXTS[where])
        if not (is_placeholder(found[1]) or PROJECT.fullmatch(found[1]))
        or not (is_placeholder(found[3]) or ID.fullmatch(found[3]))
    ]
    wrong += [
        found[0]
        for found in BUCKET.finditer(TEXTS[where])
        if not is_placeholder(found[1]) and not re.fullmatch(r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]", found[1])
    ]
    assert wrong == []


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command.words) for command in COMMANDS])
def test_examples_are_arguments_that_the_program_takes(command):
    for line in command.example.splitlines():
        words = shlex.split(line)
        assert words[0] == "headrace"
        arguments, _ = parse(words[1:])
        assert arguments.command is command
