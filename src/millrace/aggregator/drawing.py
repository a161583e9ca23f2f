"""A quote's route as a picture: one row a path, one box a token, one arrow a pool. Plain SVG, light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from millrace.aggregator.responses import PathPart, QuoteResponse

MOST_PATHS = 12
"""Rows that are drawn; what is beyond is named in a last one."""
MOST_SWAPS = 6
"""Arrows of a row; what is beyond is named in the last of them."""
BOX, GAP, ROW, TOP, LEFT = 96, 104, 56, 64, 72
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the picture may load when it is opened by itself: nothing."""
STYLE = """svg{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6470;--line:#8b95a1;--box:#eef1f5;--back:#ffffff}
@media(prefers-color-scheme:dark){svg{--ink:#e8ebef;--soft:#a5aeb9;--line:#77818d;--box:#262c34;--back:#15191e}}
.back{fill:var(--back)}.box{fill:var(--box);stroke:var(--line)}.line{stroke:var(--line);stroke-width:1.5;fill:none}
.tip{fill:var(--line)}text{font:13px system-ui,sans-serif;fill:var(--ink);text-anchor:middle}
.soft{fill:var(--soft);font-size:11px}.head{text-anchor:start;font-size:15px;font-weight:600}.start{text-anchor:start}"""


def draw(quote: QuoteResponse) -> bytes:
    """The picture of a quote, which must have its paths. Its title and description say the same in words."""
    paths = [] if quote.paths is msgspec.UNSET else quote.paths
    shown = paths[:MOST_PATHS]
    longest = max((min(len(path.swaps), MOST_SWAPS) for path in shown), default=0)
    width = max(LEFT + BOX + longest * (GAP + BOX) + 24, 480)
    height = TOP + ROW * (len(shown) + (len(paths) > len(shown))) + 16
    given = f"{_number(quote.amount_in_short)} {_ticker(quote.from_)}"
    head = f"{given} → {_number(quote.amount_out_short)} {_ticker(quote.to)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title what">',
        f'<title id="title">{escape(head)}</title><desc id="what">{escape(_words(paths))}</desc><style>{STYLE}</style>',
        f'<rect class="back" width="{width}" height="{height}"/><text class="head" x="16" y="30">{escape(head)}</text>',
    ]
    for number, path in enumerate(shown):
        parts += _row(path, quote.from_, TOP + ROW * number)
    if len(paths) > len(shown):
        rest = sum(path.split_ppm for path in paths[len(shown) :])
        text = f"{len(paths) - len(shown)} more paths, {_percent(rest)}"
        parts.append(f'<text class="soft start" x="16" y="{TOP + ROW * len(shown) + 22}">{text}</text>')
    return "".join([*parts, "</svg>\n"]).encode()


def _row(path: PathPart, token: str, top: int) -> Iterator[str]:
    """One path, from left to right."""
    middle, x = top + 18, LEFT
    yield f'<text class="soft start" x="16" y="{middle + 4}">{_percent(path.split_ppm)}</text>{_box(token, x, top)}'
    swaps = path.swaps if len(path.swaps) <= MOST_SWAPS else [*path.swaps[: MOST_SWAPS - 1], path.swaps[-1]]
    for number, swap in enumerate(swaps):
        left_out = len(path.swaps) - len(swaps) if number == len(swaps) - 1 else 0
        name = f"{left_out + 1} pools" if left_out else swap.dex
        start, end = x + BOX, x + BOX + GAP
        yield (
            f'<path class="line" d="M{start} {middle}H{end - 7}"/>'
            f'<path class="tip" d="M{end - 8} {middle - 4}L{end} {middle}L{end - 8} {middle + 4}Z"/>'
            f'<text class="soft" x="{(start + end) // 2}" y="{middle - 7}">{escape(name)}</text>'
        )
        x = end
        yield _box(swap.to, x, top)


def _box(token: str, x: int, top: int) -> str:
    return (
        f'<rect class="box" x="{x}" y="{top}" width="{BOX}" height="36" rx="6"/>'
        f'<text x="{x + BOX // 2}" y="{top + 23}"><title>{escape(token)}</title>{escape(_ticker(token))}</text>'
    )


def _words(paths: Sequence[PathPart]) -> str:
    """The route for those who cannot see it."""
    ways = []
    for path in paths:
        hops = [f"{swap.dex} to {_ticker(swap.to)}" for swap in path.swaps] or ["kept"]
        ways.append(f"{_percent(path.split_ppm)}: {', '.join(hops)}")
    return "; ".join(ways)


def _ticker(token: str) -> str:
    return token.partition("-")[0][:12]


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.4g} %"


def _number(value: float) -> str:
    return f"{value:.8g}"
