"""Arguments: strings in, a command and its settings out, or an error that teaches. And help that is fast."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
from fakes.cli import headrace, python

from pipeline.core.errors import UsageError
from pipeline.main import COMMANDS, main, parse

REQUIRED = ["--input", "a", "--schema", "s", "--output", "o", "--dead_letters", "d"]


def test_run_arguments_become_settings():
    arguments, beam = parse(
        ["run", *REQUIRED, "--input=b", "--target_shard_bytes=1.5MiB", "--csv_null_tokens=,NA,-", "--csv_multiline"]
    )
    assert arguments.input == ["a", "b"]
    assert arguments.target_shard_bytes == 1_572_864
    assert arguments.csv_null_tokens == ("", "NA", "-")
    assert (arguments.csv_multiline, arguments.allow_non_finite) == (True, False)
    assert (arguments.shuffle, arguments.seed, arguments.max_rejected_fraction) == ("blocks", 0, 1.0)
    assert beam == []


def test_hyphens_are_underscores_in_flags_and_not_in_values():
    arguments, _ = parse(["run", *REQUIRED, "--dead-letters=some-folder", "--run-id", "a-b"])
    assert (arguments.dead_letters, arguments.run_id) == ("some-folder", "a-b")


def test_beam_options_are_handed_on():
    for words in (["--direct_num_workers=3"], ["--runner", "FnApiRunner"], ["--project=p", "--temp_location=gs://b/t"]):
        assert parse(["run", *REQUIRED, *words])[1] == words


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--inptu=x"], "--input"),
        (["--max_rejected_fractoin", "0.5"], "--max_rejected_fraction"),
        (["--direct_num_worker=3"], "--direct_num_workers"),
        (["--dead_letter=x"], "--dead_letters"),
    ],
)
def test_an_unknown_flag_names_the_nearest(words, named):
    with pytest.raises(UsageError, match=f"unknown argument '{words[0]}'; did you mean {named}\\?"):
        parse(["run", *REQUIRED, *words])


def test_a_flag_like_nothing_known_is_refused_without_a_guess():
    with pytest.raises(UsageError) as error:
        parse(["run", *REQUIRED, "--qqq=zzz"])
    assert "did you mean" not in str(error.value)


def test_commands_without_beam_refuse_its_options():
    with pytest.raises(UsageError, match="unknown argument '--runner'"):
        parse(["verify", "out", "--runner", "FnApiRunner"])


@pytest.mark.parametrize(
    ("words", "typo"),
    [
        (["run", "--inptu", "x"], "--inptu"),
        (["run", "--input", "x", "--dead_lettres", "d", "--schema", "s", "--output", "o"], "--dead_lettres"),
        (["analyze", "--ouptut=o"], "--ouptut=o"),
        (["dlq", "summary", "--jsno"], "--jsno"),
        (["verify", "--jsno"], "--jsno"),
    ],
)
def test_a_typo_is_told_before_what_it_leaves_missing(words, typo):
    with pytest.raises(UsageError, match=f"^unknown argument '{typo}'; did you mean"):
        parse(words)


def test_the_value_of_an_unknown_flag_is_not_complained_about_too():
    with pytest.raises(UsageError) as error:
        parse(["run", *REQUIRED, "--inptu", "value"])
    assert "value" not in str(error.value)


def test_several_typos_are_told_at_once():
    with pytest.raises(UsageError) as error:
        parse(["run", "--inptu=x", "--shcema=y"])
    assert "--input?" in str(error.value)
    assert "--schema?" in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", *REQUIRED[2:]], "--input"),
        (["run", *REQUIRED, "stray"], "unknown argument 'stray'"),
        (["run", *REQUIRED, "--threads=0"], "--threads"),
        (["run", *REQUIRED, "--seed=-1"], "--seed"),
        (["run", *REQUIRED, "--seed=9223372036854775808"], "--seed"),
        (["run", *REQUIRED, "--target_shard_bytes=12parsecs"], "not a size"),
        (["run", *REQUIRED, "--max_rejected_fraction=1.5"], "fraction"),
        (["run", *REQUIRED, "--max_rejected_fraction=nan"], "fraction"),
        (["run", *REQUIRED, "--shuffle=some"], "blocks"),
        (["run", *REQUIRED, "--shuf=none"], "unknown argument"),
        (["nothing"], "COMMAND"),
        ([], "COMMAND"),
        (["dlq"], "COMMAND"),
    ],
)
def test_bad_usage_is_exit_2_and_one_message(words, said):
    done = headrace(*words)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert done.err.startswith("headrace: usage: ")
    assert "--help" in done.err


def test_help_of_every_command_is_quick_and_loads_neither_beam_nor_tensorflow():
    code = """
import contextlib, io, json, sys
from pipeline.main import COMMANDS, main
said = []
for words in [(), *(command.words for command in COMMANDS)]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    said.append(out.getvalue())
heavy = {"apache_beam", "tensorflow", "tensorflow_transform", "pyarrow", "numpy", "rich", "yaml"}
print(json.dumps([said, sorted(heavy & set(sys.modules))]))
"""
    said, heavy = python("-c", code).json
    assert heavy == []
    for command, text in zip(COMMANDS, said[1:], strict=True):
        assert command.example in text
        assert all(f"--{option.name}" in text for option in command.options)


def test_what_a_command_imports_is_never_looked_through_for_garbage(tmp_path):
    code = f"""
import gc, json
from pipeline.main import main
found = []
for _ in range(2):
    main(["schema", "validate", {str(tmp_path / "none")!r}])
    found.append([gc.isenabled(), gc.get_freeze_count()])
print(json.dumps(found))
"""
    (first, frozen), (second, still) = python("-c", code).json
    assert first
    assert second
    assert 10_000 < still <= frozen


def test_version_and_help_exit_0():
    assert headrace("--version").out.startswith("headrace ")
    done = headrace("run", "--help")
    assert done.code == 0
    assert "example:" in done.out


def test_output_into_a_pipe_that_closes_is_no_error():
    code = """
import subprocess, sys
command = [sys.executable, "-m", "pipeline.main", "run", "--help"]
child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
child.stdout.close()
print(child.wait(), child.stderr.read().decode())
"""
    assert python("-c", code).out.strip() == "0"


@pytest.mark.parametrize(
    "flag", ["input", "schema", "output", "dead_letters", "run_id", "features", "preprocessing_module", "transform"]
)
def test_an_empty_value_is_refused_rather_than_taken_as_none_given(flag):
    with pytest.raises(UsageError, match=f"--{flag}: it is empty"):
        parse(["run", *REQUIRED, f"--{flag}="])


@pytest.mark.parametrize("words", [["verify", ""], ["dlq", "show", " "], ["schema", "infer", "a", ""]])
def test_an_empty_place_is_refused(words):
    with pytest.raises(UsageError, match="it is empty"):
        parse(words)


def test_white_space_can_be_a_csv_delimiter():
    assert parse(["run", *REQUIRED, "--csv_delimiter=\t", "--csv_quote="])[0].csv_delimiter == "\t"


@pytest.mark.parametrize("size", ["0", "-1", "9" * 400, "9" * 320 + "GB", "1e9", "MiB", "1.5.5", "nan"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(UsageError, match="is not a size"):
        parse(["run", *REQUIRED, f"--target_shard_bytes={size}"])


def test_an_error_that_quotes_hostile_names_cannot_harm_a_terminal(tmp_path):
    packed = tmp_path / "a\x1b[31m\tb.gz"
    packed.write_bytes(b"\x1f\x8b")
    done = headrace("schema", "infer", packed)
    assert done.code == 2
    assert "\\x1b[31m" in done.err
    assert done.err.replace("\n", "").isprintable()


def test_names_that_are_no_text_can_be_printed(tmp_path):
    data = tmp_path / "f.jsonl"
    data.write_text('{"a": 1}')
    code = f"import sys; from pipeline.main import main; sys.exit(main(['schema', 'infer', {str(data)!r}, '--output', "
    done = python("-c", code + f"{str(tmp_path)!r} + '/s\\udcff']))", env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, "s\\udcff: 1 features" in done.out) == (0, True), done.err


def test_a_log_level_that_there_is_not_is_bad_usage(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "loud")
    done = headrace("schema", "validate", tmp_path)
    assert (done.code, "HEADRACE_LOG_LEVEL is 'loud'" in done.err) == (2, True)


@pytest.mark.parametrize("words", [["dlq", "show", "x"], ["verify", "x"]])
def test_an_interrupted_command_does_not_say_what_it_cannot_know(monkeypatch, capsys, words):
    """A stream or a replay may have committed before."""

    def stopped(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(execute=stopped))
    assert main(words) == 130
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "committed" not in said
