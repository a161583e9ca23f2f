"""Log lines: one JSON object each, with the context that was passed."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from millrace.runtime import logs


@pytest.fixture(autouse=True)
def restore_root_logger() -> Iterator[None]:
    """Give the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_context_and_error() -> None:
    """A record becomes one parseable line with its extras; an exception is in it, line breaks escaped."""
    stream = io.StringIO()
    logs.configure("relayer", stream=stream)
    log = logging.getLogger("millrace.test")
    log.info("hello %s", "you", extra={"shard": 1, "who": {"a": b"x"}})
    try:
        raise ValueError("broken\nline")
    except ValueError:
        log.exception("failed")
    log.debug("not shown")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["service"], first["event"], first["shard"], first["level"]) == (
        "relayer",
        "hello you",
        1,
        "info",
    )
    assert "ValueError: broken" in second["error"]


def test_text_lines_are_for_people() -> None:
    """The plain form holds level, service, text and context in one line."""
    stream = io.StringIO()
    logs.configure("notifier", "warning", json=False, stream=stream)
    logging.getLogger("millrace.test").warning("late", extra={"seconds": 3})
    assert stream.getvalue().rstrip().endswith("WARNING notifier late  seconds=3")


def test_mistakes_of_peers_are_not_logged() -> None:
    """What libraries say of a peer's bad frame, or of one that is gone, makes no line; a failure of their own does."""
    stream = io.StringIO()
    logs.configure("relayer", stream=stream)
    library = logging.getLogger("picows.server")
    library.error("WS parser error: no such opcode")
    logging.getLogger("aiofastnet").warning("write() called after connection lost.")
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    try:
        raise ValueError("broken")
    except ValueError:
        library.exception("WS parser failure")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "WS parser failure"


def test_a_fault_that_goes_on_makes_few_lines() -> None:
    """Each text is due at once and again after its time; of more different ones than the bound none is."""
    seldom = logs.Seldom(60.0, most=2)
    assert [seldom.is_due("a", now) for now in (0.0, 1.0, 59.9, 60.0, 61.0)] == [True, False, False, True, False]
    assert seldom.is_due("b", 61.0)
    assert not seldom.is_due("c", 119.9)
    assert seldom.is_due("c", 120.0)
