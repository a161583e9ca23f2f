"""A relayer that waits for a seat, as edges find it: it says so, and what its folder knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import start

from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.standing_by import StandingBy
from millrace.relayer.journal.fates import Fates
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.settings import RelayerSettings
from millrace.system.ports import free_ports


class Folder:
    """The journal of a folder, as far as one that stands by reads it."""

    def __init__(self, whole: Any) -> None:
        self.path = whole.path
        self.fails = False

    def open_records(self) -> list[Any]:
        if self.fails:
            raise JournalError("disk I/O error")
        return []


@pytest.fixture
async def folder(world: Any) -> Folder:
    await start(world, hub_url="")
    journal = world.service.journal
    await world.stop()
    return Folder(journal)


def settings_of(port: int, **changes: Any) -> RelayerSettings:
    return msgspec.structs.replace(RelayerSettings(), port=port, edges=("127.0.0.0/8",), **changes)


@pytest.fixture
async def port(folder: Folder) -> AsyncIterator[int]:
    (free,) = free_ports(1)
    made = StandingBy(settings_of(free), folder, Fates(folder.path.with_name("fates.sqlite")))  # type: ignore[arg-type]
    await made.start()
    yield free
    await made.stop()


async def records(link: aiohttp.ClientWebSocketResponse) -> list[bytes]:
    return list(wire.records(await asyncio.wait_for(link.receive_bytes(), 10)))


async def ask(link: aiohttp.ClientWebSocketResponse, number: int) -> tuple[int, int, bytes]:
    question = wire.ask(number, bytes([number]) * 32)
    await link.send_bytes(len(question).to_bytes(4, "big") + question)
    (answer,) = await records(link)
    return wire.read_known(answer)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_edge_is_told_and_answered(port: int, folder: Folder, fails: bool) -> None:
    """What nobody knows is 404; a journal that cannot be read is no reason to say so, nor to say nothing."""
    folder.fails = fails
    async with aiohttp.ClientSession() as http, http.ws_connect(f"ws://127.0.0.1:{port}{wire.PATH}") as link:
        assert await records(link) == [wire.STANDS_BY]
        number, status, body = await ask(link, 7)
        assert (number, status) == (7, 503 if fails else 404)
        assert ("disk I/O error" in body.decode()) is fails


async def test_whoever_is_no_edge_is_turned_away(port: int) -> None:
    """Clients find nobody, and who comes through a proxy of such a network is none."""
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await http.ws_connect(f"ws://127.0.0.1:{port}/ws")
        url, headers = f"ws://127.0.0.1:{port}{wire.PATH}", {"X-Forwarded-For": "8.8.8.8"}
        async with http.ws_connect(url, headers=headers) as link:
            assert (await link.receive()).type is aiohttp.WSMsgType.CLOSE
            assert link.close_code == 1008


async def test_a_port_that_another_has_ends_no_start(
    port: int, folder: Folder, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two on one machine the one with the seat serves there; the other says why edges do not hear of it."""
    other = StandingBy(settings_of(port), folder, Fates(tmp_path / "other.sqlite"))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        await other.start()
    assert "edges do not hear that this relayer stands by" in caplog.text
    await other.stop()
