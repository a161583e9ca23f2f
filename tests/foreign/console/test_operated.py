"""What an operator does in the page: explains a refusal, pauses, looks at events, and tries the references."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest

from millrace.chain import address, outport
from millrace.client import Refused, Relayer, Transaction, Wallet, sign
from millrace.system.plan import wallet_in_shard
from servers.typescript_client import System

if TYPE_CHECKING:
    from tests.foreign.console.conftest import Open

    from servers.chromium import Page

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
PICTURES = Path(__file__).parents[3] / "build" / "console"
CARD = "[...document.querySelectorAll('section')].find((card) => card.querySelector('h2').textContent.trim() === '{}')"


TOKEN = "a token of operators"


@asynccontextmanager
async def with_token(system: System, name: str) -> AsyncIterator[None]:
    """A service that wants an operators' token for what it does, until the end."""
    before = system.services[name]
    system.services[name] = dataclasses.replace(before, settings={**before.settings, "operators_token": TOKEN})
    await system.kill(name)
    await system.start(name)
    try:
        yield
    finally:
        system.services[name] = before
        await system.kill(name)
        await system.start(name)


async def become_operator(page: Page) -> None:
    """Give the page the token, as an operator does."""
    await page.until("document.querySelector('details.operator') !== null")
    await page.value("document.querySelector('details.operator').open = true")
    await fill(page, "document.querySelector('details.operator input')", TOKEN)
    await press(page, "Use it", "document.querySelector('details.operator')")
    await page.until("/is known to this tab/.test(document.querySelector('details.operator').textContent)")


async def press(page: Page, text: str, within: str = "document") -> None:
    """Click the first button or summary with this text."""
    found = f"[...({within}).querySelectorAll('button, summary')].find((one) => one.textContent.startsWith('{text}'))"
    await page.until(f"Boolean({found})")
    await page.value(f"{found}.click(); true")


async def fill(page: Page, field: str, text: str) -> None:
    """Type into a field, as far as the page notices."""
    await page.value(f"(() => {{ const field = {field}; field.value = {text!r};"
                     " field.dispatchEvent(new Event('input', {bubbles: true})); })(); true")  # fmt: skip


async def test_a_refusal_is_explained(system: System, open_page: Open) -> None:
    """What would be paid for says how much, what would not says why, and what is neither is told apart."""
    page = await open_page("relayer")
    await page.until("document.querySelectorAll('meter').length === 9")
    card = CARD.format("Explain")
    own = address.encode(wallet_in_shard(1, system.plan.network).public)
    for text, words in (
        (f'{{"sender": "{own}", "receiver": "{own}"}}', "It would be paid for"),
        (f'{{"tx": {{"sender": "{own}", "receiver": "{own}", "nonce": 9}}}}', "nonce too high"),
        ("0" * 64, "not known"),
        ("nonsense", "neither a hash nor a transaction"),
    ):
        await fill(page, "document.getElementById('explain')", text)
        await press(page, "Explain", card)
        await page.until(f"({card}).textContent.includes('{words}')")
    await press(page, "Pause", CARD.format("Keys"))  # the relayer of this system has no token
    await page.until("document.body.textContent.includes('no operators_token')")


async def test_the_life_of_a_transaction(system: System, open_page: Open) -> None:
    """The latest transactions show how far each has come, and what was refused is counted."""
    plan = system.plan
    key = await system.wallet(1)
    wallet = Wallet.from_pem_text(key.to_pem())
    page = await open_page("relayer")
    async with Relayer(plan.relayer_url, plan.relayer_ws_url) as relayer:
        wish = Transaction(
            sender=wallet.address, receiver=wallet.address, value="0", nonce=0, gas_price=10**9, gas_limit=50_000,
            chain_id=plan.network.chain_id, version=2,
        )  # fmt: skip
        signed = await sign(await relayer.prepare(wish), wallet)
        handle = await relayer.relay(signed)
        assert (await handle.final(60)).state == "success"
        refused = await sign(msgspec.structs.replace(signed, nonce=9, signature=""), wallet)
        with pytest.raises(Refused, match="nonce too high"):
            await (await relayer.relay(refused)).final(60)
    latest = CARD.format("Latest transactions")
    await page.until(f"/accepted.*signed.*sent.*block [0-9,]+ of shard 1.*success/.test(({latest}).textContent)")
    await page.until(f"({CARD.format('Refused')}).textContent.includes('nonce too high')")
    for width, dark in ((1280, False), (390, True)):
        await page.look(width, dark=dark)
        await page.picture(PICTURES / f"relayer-operated-{width}.png")
    assert page.complaints == []


async def test_events_stand_still_and_are_chosen(open_page: Open) -> None:
    """Paused, the list does not change while events come; a topic chosen shows nothing else."""
    page = await open_page("events")
    rows = f"[...({CARD.format('Events')}).querySelectorAll('tbody tr')].map((row) => row.cells[1].textContent)"
    await page.until(f"{rows}.length > 5")
    await press(page, "Pause", CARD.format("Events"))
    before = await page.value(rows)
    head = "document.querySelector('.tile .sub').textContent"
    newest = await page.value(head)
    await page.until(f"{head} !== {newest!r}")
    assert await page.value(rows) == before
    await press(page, "Go on", CARD.format("Events"))
    await page.value("(() => { const choice = document.querySelector('select'); choice.value = 'FinalizedBlock';"
                     " choice.dispatchEvent(new Event('change', {bubbles: true})); })(); true")  # fmt: skip
    cells = f"[...({CARD.format('Events')}).querySelectorAll('tbody tr')].map((row) => row.cells[2].textContent)"
    await page.until(f"[...new Set({cells})].join() === 'FinalizedBlock'")


async def test_the_references_are_tried_out(open_page: Open) -> None:
    """A request by hand is answered, a message on the WebSocket, too, and what comes back is described."""
    page = await open_page("api")
    health = CARD.format("GET /health")
    await press(page, "Try it", health)
    await press(page, "Send GET", health)
    await page.until(
        f"/200 in/.test(({health}).textContent) && ({health}).querySelector('pre').textContent.includes('pools')"
    )
    await press(page, "Relayer: WebSocket")
    socket = CARD.format("Send /ws")
    await press(page, "Try it", socket)
    await press(page, "Send", f"({socket}).querySelector('form')")
    await page.until(f"({socket}).querySelector('pre')?.textContent.includes('\"status\":\"ok\"')")
    await press(page, "Relay", socket)
    await page.until(f"({socket}).textContent.includes('traceparent')")
    assert page.complaints == []


async def test_a_pause_by_who_has_the_token(system: System, open_page: Open) -> None:
    """Without the token a pause is refused; with it the shard's key pays for nobody until it is told to go on."""
    keys = CARD.format("Keys")
    own = address.encode(wallet_in_shard(0, system.plan.network).public)
    async with with_token(system, "relayer"):
        page = await open_page("relayer")
        await page.until("document.querySelectorAll('meter').length === 9")
        await press(page, "Pause", keys)
        await page.until(f"({keys}).querySelector('.problem') !== null")
        await become_operator(page)
        await press(page, "Pause", keys)
        await page.until(f"[...({keys}).querySelectorAll('td')].some((cell) => cell.textContent === 'paused')")
        await fill(page, "document.getElementById('explain')", f'{{"sender": "{own}", "receiver": "{own}"}}')
        await press(page, "Explain", CARD.format("Explain"))
        await page.until(f"/Refused by shard 0: shard paused/.test(({CARD.format('Explain')}).textContent)")
        await press(page, "Go on", keys)
        await page.until(f"![...({keys}).querySelectorAll('td')].some((cell) => cell.textContent === 'paused')")


async def test_a_dead_letter(system: System, open_page: Open) -> None:
    """What nobody could read is listed with its reason, shown, and replayed by who has the token."""
    junk = b"\xff of no known form"
    async with with_token(system, "notifier"):
        async with aiohttp.ClientSession() as http:
            async with http.ws_connect(f"ws://127.0.0.1:{system.plan.ports.notifier}/save") as node:
                await node.send_bytes(outport.payload_envelope(outport.SAVE_BLOCK, junk, 1))
                assert outport.decode_envelope((await node.receive()).data).type == outport.ACK
        page = await open_page("events")
        letters = CARD.format("Dead letters")
        await press(page, "Show", letters)
        await page.until(f"document.querySelector('dialog pre')?.textContent.startsWith('{junk[:3].hex(' ')}')")
        await press(page, "Replay", "document.querySelector('dialog')")
        await page.until("document.querySelector('dialog .problem') !== null")
        await press(page, "Close", "document.querySelector('dialog')")
        await become_operator(page)
        await press(page, "Show", letters)
        await press(page, "Replay", "document.querySelector('dialog')")
        await page.until("/told nothing new/.test(document.querySelector('dialog').textContent)")
        assert "SaveBlock" in await page.value(f"({letters}).textContent")
