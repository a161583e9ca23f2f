"""Logging: one JSON object a line on stderr for machines, or plain lines for people.

Code everywhere uses the standard library: `log = logging.getLogger(__name__)` and passes context as
`extra={"shard": 1}`.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextvars import ContextVar
from typing import TextIO

import msgspec

# What every record has anyway; all else came in through `extra`.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_MAX_TEXT = 4096
trace_id: ContextVar[str] = ContextVar("trace_id", default="")
"""Of what is being done now, if that is traced: it stands in each line about it."""
_form = ""


class _JsonFormatter(logging.Formatter):
    """Renders a record as one line of JSON; longer texts are cut, unknown types become their `str`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service
        self._encoder = msgspec.json.Encoder(enc_hook=str, order="deterministic")

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": int(record.created * 1000),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "event": record.getMessage()[:_MAX_TEXT],
        }
        line.update(_context(record))
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = "".join(traceback.format_exception(*record.exc_info))[-_MAX_TEXT:]
        return self._encoder.encode(line).decode()


class _TextFormatter(logging.Formatter):
    """Renders a record for a person's eyes: time, level, service, text, context."""

    def __init__(self, service: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {service} %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        context = " ".join(f"{name}={value}" for name, value in _context(record).items())
        return super().format(record) + (f"  {context}" if context else "")


class Seldom:
    """Which lines of a fault that goes on are worth one.

    Each text at once, again when `seconds` have passed, and of more than `most` different ones in that time none.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._told: dict[str, float] = {}

    def is_due(self, text: str, now: float) -> bool:
        """Whether to log this text now; if so it counts as logged."""
        self._told = {said: at for said, at in self._told.items() if now - at < self._seconds}
        if text in self._told or len(self._told) >= self._most:
            return False
        self._told[text] = now
        return True


def configure(service: str, level: str = "info", *, json: bool = True, stream: TextIO | None = None) -> None:
    """Set up the root logger of this process; call it once, before anything else logs."""
    global _form
    _form = "json" if json else "text"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(service) if json else _TextFormatter(service))
    handler.addFilter(_is_worth_a_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries which report every connection at INFO would drown our own lines.
    for noisy in ("aiohttp.access", "picows", "libp2p"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def form() -> str:
    """How this process logs, for its children: `json`, `text`, or nothing where it was not set up."""
    return _form


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether to log a record. What peers do must not make lines, or anybody could fill the disk.

    picows reports each peer's bad frame as an error, transports each write to a peer that is gone already as a warning.
    """
    if record.exc_info is not None:
        return True
    return not record.name.startswith(("picows", "aiofastnet")) and record.msg != "socket.send() raised exception."


def _context(record: logging.LogRecord) -> dict[str, object]:
    context = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    traced = trace_id.get()
    return {"trace_id": traced} | context if traced else context
