"""Prints what a demonstration does, as it happens, and counts what did not hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class CheckFailed(Exception):
    """Something that must hold did not; the text says what."""


class Story:
    """One line per step: seconds since the start, what was done, how long it took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()

    def title(self, text: str) -> None:
        """A heading before a group of steps."""
        self._console.print(f"\n[bold]{text}[/bold]")

    def note(self, text: str) -> None:
        """Something to know about what follows."""
        self._console.print(f"          {text}", highlight=False, markup=False)

    @contextmanager
    def step(self, text: str) -> Iterator[list[str]]:
        """Time a step; what the step appends to the list is printed behind it."""
        notes: list[str] = []
        begun = time.monotonic()
        with self._console.status(text) if self._console.is_terminal else _nothing():
            yield notes
        took = time.monotonic() - begun
        detail = f"  [cyan]{'; '.join(notes)}[/cyan]" if notes else ""
        since_start = f"[dim]{time.monotonic() - self._start:6.2f} s[/dim]"
        self._console.print(f"{since_start}  {text}{detail}  [dim]{_duration(took)}[/dim]", highlight=False)

    def check(self, text: str, holds: bool) -> None:
        """Print a check and its outcome. Raises `CheckFailed` when it does not hold."""
        mark = "[green]✓[/green]" if holds else "[red]✗[/red]"
        self._console.print(f"          {mark} {text}", highlight=False)
        if not holds:
            raise CheckFailed(text)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


@contextmanager
def _nothing() -> Iterator[None]:
    yield
