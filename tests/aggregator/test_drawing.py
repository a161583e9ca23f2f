"""The picture of a route is well-formed, says in words what it shows, and holds whatever a quote may be."""

from __future__ import annotations

from functools import cache
from xml.etree import ElementTree

import msgspec
import pytest

from millrace.aggregator.drawing import MOST_PATHS, MOST_SWAPS, draw
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.dex.document import encode
from servers.aggregator_service import Service
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
SVG = "{http://www.w3.org/2000/svg}"
PAIR = {"from": "EGLD", "to": USDC, "amountIn": "1000000000000000000"}


@cache
def snapshot() -> Snapshot:
    return build(encode(make_market(60, seed=11)), 0.0)


def quote(**asked: object) -> QuoteResponse:
    question = QuoteRequest(**({"token_in": "EGLD", "token_out": USDC, "include_paths": True} | asked))  # type: ignore[arg-type]
    return answer(snapshot(), question, AggregatorSettings())


def drawn(body: QuoteResponse) -> ElementTree.Element:
    return ElementTree.fromstring(draw(body))


def texts(picture: ElementTree.Element) -> list[str]:
    return ["".join(part for part in text.itertext()) for text in picture.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "asked",
    [
        {"amount_in": 10**18},
        {"amount_out": 10**9},
        {"amount_in": 10**22, "max_splits": 8},
        {"amount_in": 10**18, "token_out": WRAPPED},
    ],
)
def test_a_row_for_each_path_and_an_arrow_for_each_pool(asked: dict[str, object]) -> None:
    """Title and description name amounts, exchanges and tokens; boxes and arrows are as many as the paths have."""
    body = quote(**asked)
    picture = drawn(body)
    assert isinstance(body.paths, list)
    arrows = sum(len(path.swaps) for path in body.paths)
    assert len(picture.findall(f".//{SVG}path[@class='tip']")) == arrows
    assert len(picture.findall(f".//{SVG}rect[@class='box']")) == arrows + len(body.paths)
    title, words = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    assert title is not None and title.text == texts(picture)[0]
    assert words is not None and words.text is not None
    for path in body.paths:
        assert all(swap.dex in words.text for swap in path.swaps)
    assert "prefers-color-scheme:dark" in draw(body).decode()
    assert picture.get("role") == "img"


def test_what_is_too_long_is_named() -> None:
    """Beyond so many paths and pools the picture says how many there are, and stays bounded."""
    body = quote(amount_in=10**18)
    assert isinstance(body.paths, list)
    path = body.paths[0]
    long = msgspec.structs.replace(path, swaps=path.swaps[:1] * 10)
    picture = drawn(msgspec.structs.replace(body, paths=[long] * 40))
    shown = texts(picture)
    assert len(picture.findall(f".//{SVG}path[@class='tip']")) == MOST_PATHS * MOST_SWAPS
    assert shown.count(f"{10 - MOST_SWAPS + 1} pools") == MOST_PATHS
    assert shown[-1].startswith("28 more paths")


def test_text_is_text() -> None:
    """A token that looks like markup is shown as it is."""
    body = quote(amount_in=10**18)
    strange = msgspec.structs.replace(body, from_='<b>"&-123456')
    assert texts(drawn(strange))[0].startswith('1 <b>"&')


async def test_it_is_served_with_the_errors_of_a_quote(service: Service) -> None:
    """As an image that loads nothing, or the documented words."""
    async with service.session.get(service.base + "/api/v1/quote.svg", params=PAIR) as response:
        assert (response.status, response.content_type) == (200, "image/svg+xml")
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert ElementTree.fromstring(await response.read()).tag == f"{SVG}svg"
    status, body = await service.get("/api/v1/quote.svg", **(PAIR | {"to": "NONE-123456"}))
    assert (status, body) == (400, {"error": "unknown token_out 'NONE-123456'"})
