"""The file of payloads that could not be decoded."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from millrace.notifier.journal.dead_letters import DeadLetters


def letters(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_letter_can_be_read(tmp_path: Path) -> None:
    """A letter keeps the bytes and what is known of them, also for the next process."""
    for payload in (b"\x00\xff", b""):
        dead = DeadLetters(tmp_path, 10_000)
        dead.add(7, "10.0.0.1", "SaveBlock", 1, "not an OutportBlock", payload)
        dead.sync()
        dead.close()
    first, second = letters(dead.path)
    assert base64.b64decode(first.pop("payload")) == b"\x00\xff" and second["payload"] == ""  # type: ignore[arg-type]
    assert first == {
        "at": 7,
        "remote": "10.0.0.1",
        "topic": "SaveBlock",
        "version": 1,
        "reason": "not an OutportBlock",
    }


def test_file_is_bounded(tmp_path: Path) -> None:
    """At its bound the file is put aside and the one before it goes: two files at most, the newest letters."""
    dead = DeadLetters(tmp_path, 1000)
    for number in range(60):
        dead.add(number, "r", "t", 1, "x", b"y" * 30)
    dead.close()
    kept = [int(str(letter["at"])) for path in sorted(tmp_path.iterdir()) for letter in letters(path)]
    assert sorted(kept) == list(range(60 - len(kept), 60)) and len(list(tmp_path.iterdir())) == 2


def test_undo(tmp_path: Path) -> None:
    """What was added since the last sync can be taken back; what is added then follows the rest."""
    dead = DeadLetters(tmp_path, 10_000)
    dead.add(1, "r", "t", 1, "x", b"")
    dead.sync()
    dead.add(2, "r", "t", 1, "x", b"")
    dead.undo()
    dead.add(3, "r", "t", 1, "x", b"")
    dead.close()
    assert [letter["at"] for letter in letters(dead.path)] == [1, 3]
