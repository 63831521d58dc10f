"""Dead letters: looking at them (and, later, replaying them)."""
