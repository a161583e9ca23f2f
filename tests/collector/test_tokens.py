"""Tokens' decimals: asked once, remembered in a file, never guessed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from millrace.collector.gateway import Gateway, GatewayError
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import RENEWED_AT_ONCE, RENEWED_SECONDS, TokenBook


@pytest.fixture
async def gateway(standin: Any) -> AsyncIterator[Gateway]:
    async with aiohttp.ClientSession() as session:
        yield Gateway(session, CollectorSettings(gateway=standin.url, attempts=1))


async def test_a_token_is_asked_once(gateway: Gateway, standin: Any) -> None:
    """However many want to know at the same time, and later, there is one question."""
    book = TokenBook(gateway)
    assert await asyncio.gather(*[book.decimals("USDC-c76f1f") for _ in range(20)]) == [6] * 20
    assert await book.decimals("USDC-c76f1f") == 6
    assert standin.asked["getTokenProperties"] == 1
    assert (book.info("USDC-c76f1f").ticker, book.info("USDC-c76f1f").decimals) == ("USDC", 6)


async def test_whoever_gives_up_leaves_the_question_to_the_others(gateway: Gateway) -> None:
    """Cancelling one of those who wait does not cancel the answer."""
    book = TokenBook(gateway)
    first, second = (asyncio.ensure_future(book.decimals("USDC-c76f1f")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 6
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.parametrize("token", ["", "EGLD", "usdc-c76f1f", "USDC-c76f1f@00", "é" * 10])
async def test_only_identifiers_are_asked(gateway: Gateway, standin: Any, token: str) -> None:
    """What is no token identifier never reaches the gateway."""
    with pytest.raises(GatewayError, match="not a token identifier"):
        await TokenBook(gateway).decimals(token)
    assert not standin.asked


async def test_a_failure_is_not_remembered(gateway: Gateway, standin: Any) -> None:
    """A token that could not be learnt is asked again the next time."""
    book = TokenBook(gateway)
    key = next(key for key in standin.views if key[2] == (b"USDC-c76f1f",) and key[1] == "getTokenProperties")
    values = standin.views.pop(key)
    with pytest.raises(GatewayError):
        await book.decimals("USDC-c76f1f")
    standin.views[key] = values
    assert await book.decimals("USDC-c76f1f") == 6


async def test_the_file_keeps_what_is_known(gateway: Gateway, standin: Any, tmp_path: Path) -> None:
    """A second book reads the file; saving without news writes nothing."""
    file = tmp_path / "tokens.json"
    book = TokenBook(gateway, file)
    await book.decimals("USDC-c76f1f")
    book.save()
    written = file.stat().st_mtime_ns
    book.save()
    assert file.stat().st_mtime_ns == written
    assert await TokenBook(gateway, file).decimals("USDC-c76f1f") == 6
    assert standin.asked["getTokenProperties"] == 1


async def test_what_a_manager_may_do_is_told(gateway: Gateway, standin: Any, tmp_path: Path) -> None:
    """Of the token's properties those that its holders have to fear, also from the file; the rest means nothing."""
    key = next(key for key in standin.views if key[2] == (b"USDC-c76f1f",) and key[1] == "getTokenProperties")
    said = [b"CanWipe-true", b"CanPause-false", b"CanFreeze-true", b"CanMint-true", b"CanFreeze-true", b"\xff"]
    standin.views[key] = [*standin.views[key], *said]
    book = TokenBook(gateway, tmp_path / "tokens.json")
    await book.decimals("USDC-c76f1f")
    assert book.info("USDC-c76f1f").powers == ("freeze", "wipe")
    book.save()
    again = TokenBook(gateway, tmp_path / "tokens.json")
    await again.decimals("USDC-c76f1f")
    assert again.info("USDC-c76f1f") == book.info("USDC-c76f1f")


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"USDC-c76f1f": [99, "x"]}', b'{"USDC-c76f1f": 6}', b'{"USDC-c76f1f": [6, "of before"]}', b"\xff"],
)
async def test_a_damaged_file_is_no_answer(gateway: Gateway, tmp_path: Path, content: bytes) -> None:
    """What cannot be read, or is no number of decimals, is asked again."""
    file = tmp_path / "tokens.json"
    file.write_bytes(content)
    assert await TokenBook(gateway, file).decimals("USDC-c76f1f") == 6


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_token_is_asked_about_again_once_a_day(gateway: Gateway, standin: Any, tmp_path: Path) -> None:
    """A power that its manager has gained is told from then on; what was asked is remembered in the file, too."""
    clock, file = Clock(), tmp_path / "tokens.json"
    book = TokenBook(gateway, file, clock)
    await book.decimals("USDC-c76f1f")
    key = next(key for key in standin.views if key[2] == (b"USDC-c76f1f",) and key[1] == "getTokenProperties")
    standin.views[key] = [*standin.views[key], b"CanFreeze-true"]
    clock.now += RENEWED_SECONDS - 1
    await book.renew()
    assert (standin.asked["getTokenProperties"], book.info("USDC-c76f1f").powers) == (1, ())
    clock.now += 1
    for _ in range(3):
        await book.renew()
    assert (standin.asked["getTokenProperties"], book.info("USDC-c76f1f").powers) == (2, ("freeze",))
    book.save()
    again = TokenBook(gateway, file, clock)
    await again.renew()
    assert (standin.asked["getTokenProperties"], again.info("USDC-c76f1f").powers) == (2, ("freeze",))


async def test_few_tokens_are_asked_about_again_at_once(gateway: Gateway, standin: Any) -> None:
    """Those first that wait longest; one that is not told again stays as it was, and waits a day like the others."""
    clock = Clock()
    book = TokenBook(gateway, clock=clock)
    names = sorted({key[2][0].decode() for key in standin.views if key[1] == "getTokenProperties"})
    assert len(names) > RENEWED_AT_ONCE
    for name in names:
        clock.now += 1
        await book.decimals(name)
    clock.now += RENEWED_SECONDS
    before = {name: book.info(name) for name in names}
    for key in [key for key in standin.views if key[1] == "getTokenProperties"]:
        del standin.views[key]
    standin.asked.clear()
    await book.renew()
    assert standin.asked["getTokenProperties"] == RENEWED_AT_ONCE
    for _ in range(5):
        await book.renew()
    assert standin.asked["getTokenProperties"] == len(names)
    assert {name: book.info(name) for name in names} == before


async def test_a_file_of_before_is_read(gateway: Gateway, standin: Any, tmp_path: Path) -> None:
    """Without the time of the question its tokens are known, and are asked about again soon."""
    file = tmp_path / "tokens.json"
    file.write_bytes(b'{"USDC-c76f1f": [6, "WrappedUSDC", ["freeze"]]}')
    book = TokenBook(gateway, file)
    assert (await book.decimals("USDC-c76f1f"), book.info("USDC-c76f1f").powers) == (6, ("freeze",))
    assert not standin.asked
    await book.renew()
    assert standin.asked["getTokenProperties"] == 1
