"""``--fix_module path.py:function``: the user's own repair, carried to workers as source text."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.abc import SourceLoader

from dlq_replay.fixes import UserFix
from pipeline.core.errors import UsageError


@dataclass(frozen=True)
class FixModule:
    """A Python file and the function in it that repairs: (payload, attributes) -> (payload, attributes) or None."""

    path: str
    function: str
    source: str

    def load(self) -> UserFix:
        """Execute the module and find the function. Raises UsageError where it fails or has none."""
        spec = importlib.util.spec_from_loader("headrace_fix_module", _TextLoader(self), origin=self.path)
        assert spec is not None  # it is None only for a loader without exec_module
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # the user's code may raise anything; it is theirs to fix
            raise UsageError(f"the fix module {self.path} fails on import: {error!r}") from error
        function = getattr(module, self.function, None)
        if not callable(function):
            raise UsageError(
                f"{self.path} has no function {self.function}(payload, attributes); it takes bytes and a dict, and "
                "returns both, or None to park the dead letter"
            )
        return function  # type: ignore[no-any-return]


def split_module(text: str) -> tuple[str, str]:
    """``path.py:function`` as path and function. Raises UsageError for anything else."""
    path, colon, function = text.rpartition(":")
    if not colon or not path or not function.isidentifier():
        raise UsageError(f"--fix_module {text!r}: write path.py:function")
    return path, function


class _TextLoader(SourceLoader):
    def __init__(self, module: FixModule) -> None:
        self._module = module

    def get_filename(self, fullname: str) -> str:
        return self._module.path

    def get_data(self, path: str) -> bytes:
        if path != self._module.path:
            raise OSError(path)  # no cached byte code
        return self._module.source.encode()
