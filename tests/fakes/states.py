"""State and timers of one key of a stateful DoFn, in memory, so that its methods can be called without a runner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Bag:
    """A bag state."""

    items: list[Any] = field(default_factory=list)

    def add(self, item: Any) -> None:
        """Add an item."""
        self.items.append(item)

    def read(self) -> Iterator[Any]:
        """All items."""
        return iter(list(self.items))

    def clear(self) -> None:
        """Forget all."""
        self.items.clear()


@dataclass
class Value:
    """A read-modify-write state."""

    value: Any = None

    def read(self) -> Any:
        """The value, or None."""
        return self.value

    def write(self, value: Any) -> None:
        """Set it."""
        self.value = value

    def clear(self) -> None:
        """Forget it."""
        self.value = None


@dataclass
class Timer:
    """A timer; ``sets`` are all times that it was set to, ``at`` the one that counts."""

    at: Any = None
    sets: list[Any] = field(default_factory=list)

    def set(self, at: Any) -> None:
        """Set it."""
        self.at = at
        self.sets.append(at)

    def clear(self) -> None:
        """Clear it."""
        self.at = None
