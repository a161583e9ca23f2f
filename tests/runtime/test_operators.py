"""Who may look at a service may not yet act on it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from millrace.runtime import operators
from millrace.runtime.http import json_response
from millrace.runtime.settings import Secret

TOKEN = "sixteen letters."


@asynccontextmanager
async def port(token: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A port with one thing to see and one to do."""

    async def handler(_: web.Request) -> web.Response:
        return json_response({"done": True})

    server, number = await operators.serve("127.0.0.1", 0, {"/see": handler}, {"/do": handler}, Secret(token))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{number}") as client:
            yield client
    finally:
        await server.stop()


@pytest.fixture
def level() -> Iterator[None]:
    """The level of the log is put back."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_without_a_token_there_are_no_actions() -> None:
    """Where the settings have none, what can be seen is there and what can be done is not, whatever is sent."""
    async with port("") as client:
        async with client.get("/see") as answer:
            assert answer.status == 200
        for path in ("/do", "/control/log-level"):
            async with client.post(path, headers=bearer("")) as answer:
                assert answer.status == 404


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN])
async def test_a_wrong_token_is_refused(given: str) -> None:
    """Anything but the token itself is 401, and nothing is done; looking needs none."""
    async with port(TOKEN) as client:
        async with client.post("/do", headers={"Authorization": given}) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        async with client.get("/see") as answer:
            assert answer.status == 200


async def test_the_token_opens_actions(caplog: pytest.LogCaptureFixture) -> None:
    """With it an action is performed and logged, without the token in the log."""
    caplog.set_level(logging.INFO)
    async with port(TOKEN) as client:
        async with client.post("/do", headers=bearer(TOKEN)) as answer:
            assert (answer.status, await answer.json()) == (200, {"done": True})
        async with client.get("/do", headers=bearer(TOKEN)) as answer:
            assert answer.status == 405
    assert "an operator's action" in caplog.messages
    assert "sixteen" not in caplog.text


async def test_a_short_token_is_refused_at_the_start() -> None:
    """A token that can be guessed is no start."""
    with pytest.raises(OSError, match="at least 16 characters"):
        async with port("short"):
            pass


@pytest.mark.usefixtures("level")
async def test_the_log_can_be_made_to_tell_more() -> None:
    """The level holds from then on; one that there is not is refused with those that there are."""
    async with port(TOKEN) as client:
        headers = bearer(TOKEN)
        async with client.post("/control/log-level", json={"level": "debug"}, headers=headers) as answer:
            assert answer.status == 200
        assert logging.getLogger().level == logging.DEBUG
        for body in (b"", b"{}", b'{"level": "loud"}', b'{"level": "debug", "x": 1}', b"[" * 99):
            async with client.post("/control/log-level", data=body, headers=headers) as answer:
                assert answer.status == 400
                assert "debug, info, warning, error" in (await answer.json())["error"]
