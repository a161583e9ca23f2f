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
        dead.keep()
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
        dead.begin()
        dead.add(number, "r", "t", 1, "x", b"y" * 30)
        dead.keep()
    dead.close()
    kept = [int(str(letter["at"])) for path in sorted(tmp_path.iterdir()) for letter in letters(path)]
    assert sorted(kept) == list(range(60 - len(kept), 60)) and len(list(tmp_path.iterdir())) == 2


def test_what_is_not_kept_is_taken_back(tmp_path: Path) -> None:
    """Letters that were not kept go when others begin, and at the end, on disk or not; the others stay."""
    dead = DeadLetters(tmp_path, 10_000)
    for number, keeps in ((1, True), (2, False), (3, False), (4, True)):
        dead.begin()
        dead.add(number, "r", "t", 1, "x", b"")
        dead.sync()
        if keeps:
            dead.keep()
    dead.close()
    again = DeadLetters(tmp_path, 10_000)
    again.add(5, "r", "t", 1, "x", b"")
    again.close()
    assert [letter["at"] for letter in letters(dead.path)] == [1, 4]


def test_letters_that_belong_together_stay_in_one_file(tmp_path: Path) -> None:
    """A file at its bound is put aside before letters are added, not between them: they can be taken back together."""
    dead = DeadLetters(tmp_path, 1)
    for number in range(2):
        dead.begin()
        dead.add(number, "r", "t", 1, "x", b"")
        dead.add(number, "r", "t", 1, "x", b"")
        dead.keep()
    dead.close()
    kept = [[letter["at"] for letter in letters(path)] for path in sorted(tmp_path.iterdir())]
    assert kept == [[0, 0], [1, 1]]
