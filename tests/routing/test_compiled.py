"""Kernels compiled and as plain Python: the same answers, and nothing stale."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing import compiled
from millrace.routing.compiled import COMPILED, MODULE, VARIABLE, StaleKernels, digest, kernel
from millrace.routing.potential import potentials, source_rate
from millrace.routing.ranking import nth_largest
from millrace.routing.router import Router
from synthetic import make_market


def answers(*arguments: str, **environment: str) -> list[str]:
    """What another process answers, line by line."""
    command = [sys.executable, str(Path(__file__).with_name("plain_answers.py")), *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_compiled_and_plain_kernels_give_the_same_answers_to_the_last_bit() -> None:
    """Plans, flows and bounds are equal in markets of every kind: the plain kernels are the oracle of the others."""
    assert COMPILED, "kernels are not compiled here: ./run install"
    fast, plain = answers(), answers(**{VARIABLE: "plain"})
    assert (fast[0], plain[0]) == ("compiled", "plain")
    assert len(plain) > 60
    assert fast[1:] == plain[1:]


def test_no_kernel_counts_from_the_end_of_an_array() -> None:
    """Compiled, an index below 0 would read what lies before the array: in plain Python none is met."""
    assert len(answers("forward", **{VARIABLE: "plain"})) > 60


def test_compiled_kernels_are_those_of_the_sources() -> None:
    """The extension carries the digest of the files that it was made of."""
    made: Any = importlib.import_module(MODULE)
    assert digest(made.FILES) == made.SOURCES
    assert "millrace/routing/newton.py" in made.FILES


def test_stale_kernels_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels whose sources have changed, or are gone, are not used silently."""
    made: Any = importlib.import_module(MODULE)
    for files, sources, compiler in (
        (made.FILES, "another", made.COMPILER),
        ([*made.FILES, "millrace/routing/gone.py"], made.SOURCES, made.COMPILER),
        (made.FILES, made.SOURCES, "another"),
    ):
        monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(FILES=files, SOURCES=sources, COMPILER=compiler))
        with pytest.raises(StaleKernels, match="uv sync"):
            compiled._load()


def test_a_wheel_is_not_asked_for_its_compiler(tmp_path: Path) -> None:
    """Where there is no checkout there is nothing that could be newer; in one, a changed or new file of it is."""
    assert compiled._same_compiler("any", tmp_path)
    (tmp_path / "hatch_build.py").touch()
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler/join.py").write_text("1")
    made_by = digest(["compiler/join.py"], tmp_path)
    assert compiled._same_compiler(made_by, tmp_path)
    (tmp_path / "compiler/types.py").write_text("2")
    assert not compiled._same_compiler(made_by, tmp_path)


def test_a_kernel_that_was_not_compiled_is_refused() -> None:
    """A new kernel beside an extension without it is not run as plain Python, which nobody would notice."""

    def newer(x: float) -> float:
        return x

    newer.__module__ = "millrace.routing.newer"
    with pytest.raises(StaleKernels):
        kernel(newer)


def test_without_compiled_kernels_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what to do; nothing is said where plain kernels are wished."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    with caplog.at_level(logging.WARNING):
        assert compiled._load() is None
    assert [record.message for record in caplog.records if "compiler" in record.message]
    caplog.clear()
    monkeypatch.setenv(VARIABLE, "plain")
    assert compiled._load() is None
    assert not caplog.records


def test_arrays_of_another_kind_are_refused() -> None:
    """Another type of elements or order of their bytes, a stride, what may not be written to, or what is no array at
    all: an error, not wrong numbers."""
    fixed = np.zeros(4)
    fixed.setflags(write=False)
    wrong: list[Any] = [np.zeros(4, np.float32), np.zeros(8)[::2], np.zeros((2, 2)), [1.0, 2.0]]
    wrong += [np.zeros(4, np.dtype(np.float64).newbyteorder()), fixed]
    for values in wrong:
        with pytest.raises(TypeError, match=r"wants a writable array of double, 1 dimensions"):
            nth_largest(values, 2, 1)
    document = make_market(3, 1)
    net = Router(document.pools, DictMarket(document.pools, document.wrapped_native_token))._graph.net
    with pytest.raises(TypeError, match="wants a Net"):
        source_rate(net[:-1], 0, potentials(net, 0, True))  # type: ignore[arg-type]


TWO_THREADS = """
import sys, threading
import numpy as np
from millrace.routing.compiled import keep_gil
from millrace.routing.ranking import nth_largest

values, turns, over = np.linspace(0.0, 1.0, 1_000_000), [0], threading.Event()

def ask():
    while not over.wait(1e-9):  # without the GIL, which it asks for again
        turns[0] += 1

sys.setswitchinterval(1000.0)  # whoever computes is not interrupted: a turn is had when it is given
other = threading.Thread(target=ask, daemon=True)
other.start()
for keeps in (False, True):
    keep_gil(keeps)
    before = turns[0]
    while not keeps and turns[0] == before:
        nth_largest(values, len(values), 1)
    before = turns[0]
    for _ in range(100):
        nth_largest(values, len(values), 1)
    print(keeps, turns[0] == before)
over.set()
"""


def test_threads_take_turns_while_a_kernel_runs_unless_its_thread_keeps_the_gil() -> None:
    """What computes for long lets others go on; an event loop does not wait for them between its kernels."""
    done = subprocess.run([sys.executable, "-c", TWO_THREADS], capture_output=True, text=True, check=True)
    given_up, kept = done.stdout.splitlines()
    assert given_up.startswith("False")  # it came to its end: the other thread had a turn
    assert kept == "True True"
