"""Dead letters as they are listed and read, whatever the files look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.notifier.journal import dead_letter_list as listing
from millrace.notifier.journal.dead_letters import DeadLetters


def _written(directory: Path, count: int, size: int = 10, most: int = 1 << 30) -> None:
    letters = DeadLetters(directory, most)
    for number in range(count):
        letters.begin()
        letters.add(number, "node", "SaveBlock", 1, f"reason {number}", bytes([number % 256]) * size)
        letters.keep()
    letters.close()


def test_the_newest_come_first(tmp_path: Path) -> None:
    """A hundred at most, each with its size, and each can be read whole by its id."""
    assert listing.listed(tmp_path) == []
    _written(tmp_path, 130, size=7)
    letters = listing.listed(tmp_path)
    assert [letter.at for letter in letters] == list(range(129, 29, -1))
    for letter in letters[::9]:
        assert listing.read(tmp_path, letter.id) == (letter, bytes([letter.at]) * 7) and letter.bytes == 7


def test_both_files_are_read(tmp_path: Path) -> None:
    """What was rotated comes behind the newer ones."""
    _written(tmp_path, 10, size=200, most=1_000)
    letters = listing.listed(tmp_path)
    assert {letter.id[0] for letter in letters} == {"0", "1"}
    assert [letter.at for letter in letters] == sorted((letter.at for letter in letters), reverse=True)
    assert all(listing.read(tmp_path, letter.id) is not None for letter in letters)


@pytest.mark.parametrize("sizes", [(10, 10, 2_000), (2_000, 10, 3_000), (0, 1, 2, 3, 4_096)])
@pytest.mark.parametrize("piece", [1, 7, 1_000, 1 << 20])
def test_a_large_letter_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, sizes: tuple[int, ...]
) -> None:
    """Letters of any size are listed and can be read, whatever is looked at at a time."""
    monkeypatch.setattr(listing, "_PIECE", piece)
    letters = DeadLetters(tmp_path, 1 << 30)
    for number, size in enumerate(sizes):
        letters.add(number, 'a "node"', "SaveBlock", 1, 'not "payload":""', b"x" * size)
    letters.keep()
    letters.close()
    found = listing.listed(tmp_path)
    assert [letter.bytes for letter in found] == list(reversed(sizes))
    for letter in found:
        assert listing.read(tmp_path, letter.id) == (letter, b"x" * letter.bytes)


def test_damage_is_left_out(tmp_path: Path) -> None:
    """A half line, a line of something else, one without its end, and ids that are none."""
    _written(tmp_path, 3)
    path = tmp_path / "dead-letters.jsonl"
    path.write_bytes(b"nonsense\n" + path.read_bytes() + path.read_bytes()[:60] + b"\n{}\n" + b'{"at":')
    assert [letter.at for letter in listing.listed(tmp_path)] == [2, 1, 0]
    for name in ("", "0", "0-", "0-1", "2-0", "0--1", "0-99999", "1-0", "0-0", "../0-0", "0-٣"):
        assert listing.read(tmp_path, name) is None
