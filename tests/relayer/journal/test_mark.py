"""The mark: the last acknowledged commit, whatever write of it was cut off; never taken for another folder's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.relayer.journal.chain import NO_HEAD, Link
from millrace.relayer.journal.mark import NOTHING, Mark, MarkError, Seen, check_holds, check_is_newest

WRITER = "ab" * 16


def link(sequence: int) -> Link:
    """The link of a number; heads say it."""
    return Link(sequence, bytes([sequence]) * 32, bytes([sequence - 1]) * 32, 0)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Mark]:
    made = Mark(tmp_path / "place" / "mark", WRITER)
    made.make(NOTHING)
    made.open()
    yield made
    made.close()


def test_what_was_written_last_is_read(mark: Mark) -> None:
    """The newest of the two slots counts; the file is as long as it was made, and for its owner alone."""
    assert mark.read() == NOTHING == Seen(0, NO_HEAD)
    for sequence in range(1, 6):
        mark.write(link(sequence))
        assert mark.read() == Seen(sequence, link(sequence).head)
        assert mark.path.stat().st_size == 8192
    assert mark.path.stat().st_mode & 0o077 == 0


def test_it_is_on_disk_when_write_returns(mark: Mark) -> None:
    """The kernel syncs each write before it returns."""
    descriptors = [item.name for item in Path("/proc/self/fd").iterdir() if _is(item, mark.path)]
    for name in descriptors:
        flags = Path(f"/proc/self/fdinfo/{name}").read_text().split("flags:")[1].split()[0]
        assert int(flags, 8) & os.O_DSYNC
    assert len(descriptors) == 1


def _is(descriptor: Path, path: Path) -> bool:
    """Whether an open file is this one; of those that are closed meanwhile none is."""
    try:
        return descriptor.readlink() == path
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("place", range(0, 90, 7))
def test_a_write_that_was_cut_off_leaves_the_one_before(mark: Mark, place: int) -> None:
    """Whatever becomes of the slot that is written, the other one is the last that was acknowledged."""
    for sequence in (1, 2, 3):
        mark.write(link(sequence))
    data = bytearray(mark.path.read_bytes())
    slot = 4096 if 3 % 2 else 0
    data[slot + min(place, 79)] ^= 0x55
    mark.path.write_bytes(data)
    assert mark.read() == Seen(2, link(2).head)


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"", "damaged"), (bytes(8192), "damaged"), (bytes(8193), "damaged"), (None, "missing")],
)
def test_a_mark_that_says_nothing_is_refused(mark: Mark, data: bytes | None, word: str) -> None:
    """Without a whole slot it is not known what was acknowledged."""
    if data is None:
        mark.path.unlink()
    else:
        mark.path.write_bytes(data)
    with pytest.raises(MarkError, match=word):
        mark.read()


def test_a_mark_of_another_folder(mark: Mark) -> None:
    """It names its folder, and no other one believes it."""
    with pytest.raises(MarkError, match=f"belongs to the data directory {WRITER}"):
        Mark(mark.path, "cd" * 16).read()


SEEN = Seen(5, link(5).head)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (None, "older copy"),
        (link(4), "ends at commit 4, and commit 5 was acknowledged"),
        (link(5)._replace(head=b"other"), "not the one that was acknowledged"),
        (link(6)._replace(before=b"other"), "not the one that was acknowledged"),
        (link(7), "the mark is an older copy"),
    ],
)
def test_row_53_a_journal_that_is_not_at_its_mark(found: Link | None, word: str) -> None:
    """It ends before, elsewhere, or further on than one commit that nobody was told of."""
    with pytest.raises(MarkError, match=word):
        check_is_newest(SEEN, found)


def test_a_journal_at_its_mark() -> None:
    """At the mark, or one commit past it; while commits go on also further."""
    for found in (link(5), link(6)):
        check_is_newest(SEEN, found)
    check_holds(SEEN, link(9))
    check_is_newest(NOTHING, None)
