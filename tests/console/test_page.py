"""The page's files: what they weigh, what goes with them, and their colours."""

from __future__ import annotations

import gzip
import re
from importlib import resources
from typing import TYPE_CHECKING

import aiohttp
import pytest

from millrace.console.page import SECURITY, Page

if TYPE_CHECKING:
    from tests.console.conftest import Started

MOST_BYTES = 250 * 1024
"""Of the whole page as a browser gets it."""
FILES = resources.files("millrace.console") / "page"
STYLE = (FILES / "style.css").read_text()


def test_the_page_is_small() -> None:
    """All of it, compressed, with the font, is 250 KB at most."""
    assert Page().compressed_size <= MOST_BYTES


async def test_a_file(started: Started, http: aiohttp.ClientSession) -> None:
    """A file comes compressed to who takes that, once, and with all that keeps the page to itself."""
    url, _ = await started()
    async with http.get(f"{url}/", headers={"Accept-Encoding": "identity"}, auto_decompress=False) as answer:
        whole, tag = await answer.read(), answer.headers["ETag"]
        assert answer.headers.items() >= SECURITY.items()
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
    async with aiohttp.ClientSession(auto_decompress=False) as plain:
        async with plain.get(f"{url}/index.html", headers={"Accept-Encoding": "gzip"}) as answer:
            assert gzip.decompress(await answer.read()) == whole
    async with http.get(f"{url}/", headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304


@pytest.mark.parametrize("path", ["nowhere", "health", "settings.json", "aggregator/health"])
async def test_every_answer_is_kept_to_the_page(started: Started, http: aiohttp.ClientSession, path: str) -> None:
    """No answer may be framed, read by another site's page, or taken for something else than it is."""
    url, _ = await started()
    async with http.get(f"{url}/{path}") as answer:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_nothing_comes_from_elsewhere() -> None:
    """No file of ours names another host, and none has code in its markup."""
    for name in ("index.html", "style.css", "app.js"):
        text = (FILES / name).read_text()
        assert not re.search(r"(src|href|url\(|import|fetch)[^\n]{0,20}https?://", text)
    markup = (FILES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", markup)


def test_licences_come_with_it() -> None:
    """Each library that is bundled is there with its licence."""
    notice = (FILES / "vendor" / "NOTICE.txt").read_text()
    for name in ("preact", "htm", "uplot", "d3-sankey", "@fontsource-variable/inter", "@noble/hashes"):
        assert re.search(rf"^{re.escape(name)} \d+\.\d+", notice, re.MULTILINE)


def _colours() -> dict[str, tuple[str, str]]:
    return {name: (light, dark) for name, light, dark in re.findall(
        r"--([\w-]+): light-dark\((#[0-9a-fA-F]{6}), (#[0-9a-fA-F]{6})\)", STYLE)}  # fmt: skip


def _luminance(colour: str) -> float:
    """Of WCAG 2.2: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("front", "back", "least"),
    [
        *((front, back, 4.5) for front in ("text", "text2") for back in ("bg", "card", "sunk")),
        *((front, "card", 4.5) for front in ("accent", "good", "warn", "bad")),
        *((front, f"{front}-soft", 4.5) for front in ("good", "warn", "bad")),
        ("accent-text", "accent", 4.5),
        ("text", "accent-soft", 4.5),
        *((front, "card", 3.0) for front in ("line-strong", "x1", "x2", "x3", "x4")),
    ],
)
def test_contrast(front: str, back: str, least: float) -> None:
    """Text has a contrast of 4.5, controls and pictures 3, in light and in dark (WCAG 2.2, AA)."""
    colours = _colours()
    for first, second in zip(colours[front], colours[back], strict=True):
        low, high = sorted((_luminance(first), _luminance(second)))
        assert (high + 0.05) / (low + 0.05) >= least, (front, back)
