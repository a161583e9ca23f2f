"""Kernels are compiled by two processes at first, and each finds what the other has made."""

from __future__ import annotations

from pathlib import Path

from millrace.routing.warm import parts, take_over, warm


def test_what_is_compiled_ahead_is_what_searches_use() -> None:
    """The types that the large parts are compiled for are the ones that a search calls them with: there is one code."""
    warm()
    for part in [part for share in parts() for part in share]:
        part.compile()
        module, name = part.kernel.__module__.rpartition(".")[2], part.kernel.__name__
        cache = Path(part.kernel.stats.cache_path)
        assert len(list(cache.glob(f"{module}.{name}-*.nbc"))) == 1, name


def test_a_folder_of_kernels_is_taken_over_without_replacing_any(tmp_path: Path) -> None:
    """New kernels move with all their files; one that is there already stays as it is, with its own files."""
    made, cache = tmp_path / "made", tmp_path / "cache"
    for folder, name, text in [
        (made, "a.f-1.nbi", "index"),
        (made, "a.f-1.1.nbc", "code"),
        (made, "a.f-1.2.nbc", "more code"),
        (made, "a.f-11.nbi", "its own"),
        (made, "a.f-11.1.nbc", "its own"),
        (made, "a.g-2.nbi", "theirs"),
        (made, "a.g-2.1.nbc", "theirs"),
        (cache, "a.g-2.nbi", "ours"),
        (cache, "a.g-2.1.nbc", "ours"),
    ]:
        (folder / "routing").mkdir(parents=True, exist_ok=True)
        (folder / "routing" / name).write_text(text)
    take_over(made, cache)
    assert {path.name: path.read_text() for path in (cache / "routing").iterdir()} == {
        "a.f-1.nbi": "index",
        "a.f-1.1.nbc": "code",
        "a.f-1.2.nbc": "more code",
        "a.f-11.nbi": "its own",
        "a.f-11.1.nbc": "its own",
        "a.g-2.nbi": "ours",
        "a.g-2.1.nbc": "ours",
    }


def test_nothing_to_take_over_changes_nothing(tmp_path: Path) -> None:
    """A helper that has made nothing, or ended before it began, leaves the cache as it is."""
    take_over(tmp_path / "absent", tmp_path)
    assert not list(tmp_path.iterdir())
