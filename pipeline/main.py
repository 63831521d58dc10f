"""The ``headrace`` command: argv to a subcommand, its exit code, errors in words. Imports little: help is fast."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from pipeline import __version__
from pipeline.core.errors import HeadraceError, RefusedError, UsageError
from pipeline.core.text import printable
from pipeline.logs import configure_logging, silent_imports
from pipeline.options import kinds
from pipeline.options.commands import COMMANDS, GROUPS, Command

_LINE = 4096  # characters of an error's line that are shown

_EPILOG = """\
exit codes: 0 done; 1 the run failed; 2 bad usage or configuration; 3 the data failed a guard,
nothing was committed; 4 refused for safety.
"""


def build_parser(*, enforce: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands; ``enforce=False`` lets what is required be missing."""
    parser = kinds.Parser(
        prog="headrace",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Raw records in; TFRecord training shards and dead letters out.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    top = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=kinds.Parser)
    groups = {}
    for command in COMMANDS:
        first = command.words[0]
        if len(command.words) == 1:
            _add_command(top, command, enforce=enforce)
            continue
        if first not in groups:
            group = top.add_parser(first, help=GROUPS[first], description=GROUPS[first], allow_abbrev=False)
            groups[first] = group.add_subparsers(metavar="COMMAND", required=True, parser_class=kinds.Parser)
        _add_command(groups[first], command, enforce=enforce)
    return parser


def _add_command(subparsers: argparse._SubParsersAction[kinds.Parser], command: Command, *, enforce: bool) -> None:
    beam = (
        "\n\nApache Beam's own options are taken too (--runner, --project, ...)." if command.takes_beam_options else ""
    )
    parser = subparsers.add_parser(
        command.words[-1],
        help=command.help,
        description=command.help,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n  {command.example}{beam}",
    )
    if command.positional:
        name, nargs, text = command.positional
        taken = None if nargs == "1" else nargs
        parser.add_argument(name, nargs=taken if enforce else "*", type=kinds.named, help=text, metavar=name.upper())
    kinds.add_options(parser, command.options, enforce=enforce)
    parser.set_defaults(command=command, parser=parser)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Read ``argv`` into the arguments of a command and the arguments that are Beam's.

    Raises UsageError for anything unknown (naming the nearest known flag), missing or malformed.
    """
    words = _underscored(argv)
    try:
        arguments, rest = build_parser().parse_known_args(words)
    except UsageError:
        _refuse_typos(words)  # a misspelt flag is often the one that is missed
        raise
    _refuse_unknown(arguments, rest)
    return arguments, rest


def _refuse_typos(words: Sequence[str]) -> None:
    """Raise UsageError for unknown flags in arguments that lack something else too."""
    try:
        arguments, rest = build_parser(enforce=False).parse_known_args(words)
    except UsageError:
        return
    _refuse_unknown(arguments, rest)


def _refuse_unknown(arguments: argparse.Namespace, rest: Sequence[str]) -> None:
    """Raise UsageError if ``rest`` holds anything that is not Beam's, for a command that takes Beam's options."""
    command: Command = arguments.command
    known = [flag for action in arguments.parser._actions for flag in action.option_strings]
    unknown = list(rest)
    if rest and command.takes_beam_options:
        from pipeline.commands.beam_options import split_known

        unknown, beam_flags = split_known(rest)
        known += beam_flags
    # A word behind an unknown flag is its value, and goes without saying.
    shown = [word for word, flag in zip(unknown, ["", *unknown], strict=False) if word[:1] == "-" or flag[:1] != "-"]
    kinds.refuse_unknown("headrace " + " ".join(command.words), shown, known)


def _underscored(argv: Sequence[str]) -> list[str]:
    """``--dead-letters`` is understood as ``--dead_letters``: flags are spelt with underscores, as Beam's are."""
    result = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        result.append(name.replace("-", "_").replace("__", "--", 1) + equals + value if name[:2] == "--" else argument)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; errors go to stderr in words, with a trace only at debug level."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text, nor the locale UTF-8
    before = None
    if threading.current_thread() is threading.main_thread():  # as Ctrl-C, so that nothing is left in staging
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _uncollected():
            arguments, beam_arguments = parse(sys.argv[1:] if argv is None else argv)
            configure_logging(arguments.log_format)
            with silent_imports():
                module = importlib.import_module(f"pipeline.commands.{arguments.command.module}")
        return int(module.execute(arguments, beam_arguments))
    except HeadraceError as error:
        kind = "usage" if isinstance(error, UsageError) else "refused" if isinstance(error, RefusedError) else "failed"
        print(f"headrace: {kind}: {_shown(error)}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        logging.getLogger(__name__).debug("storage fault", exc_info=True)
        print(f"headrace: failed: storage: {_shown(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("headrace: interrupted before it was done", file=sys.stderr)
        return 130
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from what the body imports, now and for ever; once in a process.

    TensorFlow and Beam make a million objects that live to the end: looking for garbage among them takes a second
    and a half while they load, and another at exit.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _shown(error: Exception) -> str:
    """What went wrong, line by line, without what could harm a terminal: it may quote file names and data."""
    return "\n".join(printable(line.expandtabs(), _LINE) for line in str(error).split("\n"))


if __name__ == "__main__":
    sys.exit(main())
