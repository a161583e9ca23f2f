"""Dead letters as they are listed and read, whatever the files look like."""

from __future__ import annotations

from pathlib import Path

from millrace.notifier.journal import dead_letter_list as listing
from millrace.notifier.journal.dead_letters import DeadLetters


def _written(directory: Path, count: int, size: int = 10, most: int = 1 << 30) -> None:
    letters = DeadLetters(directory, most)
    for number in range(count):
        letters.add(number, "node", "SaveBlock", 1, f"reason {number}", bytes([number % 256]) * size)
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


def test_only_the_end_of_a_large_file_is_looked_at(tmp_path: Path, monkeypatch: object) -> None:
    """However large it is."""
    from pytest import MonkeyPatch

    with MonkeyPatch.context() as patch:
        patch.setattr(listing, "TAIL_BYTES", 1_000)
        _written(tmp_path, 50)
        letters = listing.listed(tmp_path)
    assert 3 < len(letters) < 12 and letters[0].at == 49


def test_damage_is_left_out(tmp_path: Path) -> None:
    """A half line, a line of something else, and ids that are none."""
    _written(tmp_path, 3)
    path = tmp_path / "dead-letters.jsonl"
    path.write_bytes(b"nonsense\n" + path.read_bytes() + b'{"at":')
    assert [letter.at for letter in listing.listed(tmp_path)] == [2, 1, 0]
    for name in ("", "0", "0-", "0-1", "2-0", "0--1", "0-99999", "1-0", "0-0", "../0-0", "0-٣"):
        assert listing.read(tmp_path, name) is None
