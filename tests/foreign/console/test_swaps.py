"""Swaps in the page: one that works, one that the market undoes, and services that lie."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from millrace.chain.address import decode, encode
from millrace.client import Aggregator, Relayer, Wallet, sign
from millrace.system.plan import wallet_in_shard
from servers.chromium import Page
from servers.typescript_client import System

if TYPE_CHECKING:
    from tests.foreign.console.conftest import Open

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
PAY, GET = "USDC-c76f1f", "WEGLD-bd4d79"
PAID = 1_000 * 10**6
STEPS = "document.querySelector('.steps')?.textContent ?? ''"
READY = "document.getElementById('swap')?.disabled === false"


async def press(page: Page, identifier: str) -> None:
    """Click the button with this id, as soon as it can be clicked."""
    await page.until(f"document.getElementById('{identifier}')?.disabled === false")
    await page.value(f"document.getElementById('{identifier}').click()")


async def funded(page: Page) -> str:
    """Open a demonstration wallet with tokens; its address."""
    await press(page, "demonstration")
    await press(page, "fund")
    await page.until(READY)
    label = await page.value(
        "document.querySelector('.hash[aria-label^=\"Copy address erd1\"]').getAttribute('aria-label')"
    )
    return str(label).split()[-1]


async def test_a_swap(system: System, open_page: Open) -> None:
    """A wallet without EGLD swaps: every step is told, both hashes are shown, and the chain says the same."""
    page = await open_page("swap")
    address = await funded(page)
    before = await system.chain.balances(address)
    await press(page, "swap")
    await page.until(f"/Executed/.test({STEPS})")
    told = await page.value(STEPS)
    for step in (
        "says what was asked for",
        "relayer will pay the gas",
        "Signed in this tab",
        "Co-signed by the relayer",
    ):
        assert step in told
    hashes = await page.value("[...document.querySelectorAll('.hashes button')].map((one) => one.title.slice(0, 64))")
    assert len(set(hashes)) == 2
    assert (await system.chain.transaction(hashes[1]))["status"] == "success"
    after = await system.chain.balances(address)
    assert before[PAY] - after[PAY] == PAID
    assert after[GET] > 0
    assert after["EGLD"] == 0
    assert page.complaints == []


async def test_a_swap_that_the_market_undoes(system: System, open_page: Open) -> None:
    """The price has moved further than allowed: the page says so in words, with the contract's own beside them."""
    page = await open_page("swap")
    address = await funded(page)
    await page.value("document.querySelector('.slippage .seg button').click()")  # a tenth of a per cent
    await page.until(READY)
    plan = system.plan
    async with Aggregator(plan.aggregator_url) as aggregator, Relayer(plan.relayer_url, plan.relayer_ws_url) as relayer:
        contract = decode((await aggregator.config()).contract)
        # Where the contract lives: no block later than the page's swap, wherever that wallet lives.
        whale = Wallet.from_pem_text(wallet_in_shard(plan.network.shard_of(contract), plan.network).to_pem())
        await system.chain.fund(whale.address, PAY, 400_000 * 10**6)
        await system.chain.fund(whale.address, "EGLD", 10**18)
        quote = await aggregator.quote(PAY, GET, amount_in=400_000 * 10**6, slippage="0.2", sender=whale.address)
        assert quote.transaction is not None
        # Dearer gas: in the same block it comes first.
        unsigned = msgspec.structs.replace(quote.transaction, nonce=0, gas_price=5 * 10**9)
        signed = await sign(unsigned, whale)
        for shard in range(plan.network.shards):
            await system.control("stop", shard=shard)
        await press(page, "swap")
        await page.until(f"/Waiting for the chain/.test({STEPS})")
        handle = await relayer.broadcast(signed)
        for shard in range(plan.network.shards):
            await system.control("start", shard=shard)
        assert (await handle.final(60)).state == "success"
    await page.until(f"/Not executed/.test({STEPS})")
    told = await page.value(STEPS)
    assert "price moved further than the slippage that you allowed" in told
    assert "execution failed" in told
    # From another shard they come back a block after the contract has failed.
    async with asyncio.timeout(30):
        while (await system.chain.balances(address))[PAY] != 3 * PAID:
            await asyncio.sleep(0.05)


LYING = """
  const real = window.WebSocket;
  window.WebSocket = class extends real {
    set onmessage(take) {
      super.onmessage = ({ data }) => take({ data: typeof data === "string" ? data : changed(data) });
    }
  };
  function changed(data) {
    const text = new TextDecoder().decode(data).replace(/"receiver":"erd1[a-z0-9]+"/, '"receiver":"' + THIEF + '"');
    return new TextEncoder().encode(text).buffer;
  }
"""


async def test_an_aggregator_that_lies(system: System, open_page: Open) -> None:
    """A transaction that pays somebody else than a contract is no quote: the page says so, nothing can be signed."""
    page = await open_page("network")
    thief = encode(wallet_in_shard(1, system.plan.network).public)
    await page.ask("Page.addScriptToEvaluateOnNewDocument", source=f"const THIEF = {json.dumps(thief)};{LYING}")
    await page.ask("Page.navigate", url=f"{system.plan.console_url}/?again#/swap")
    await press(page, "demonstration")
    await press(page, "fund")
    await page.until("/balance [1-9]/.test(document.body.textContent)")
    await page.until("/something else than was asked for. Nothing was signed/.test(document.body.textContent)")
    assert await page.value("document.getElementById('swap').disabled") is True


ANSWERS = """
  const real = window.fetch;
  window.fetch = async (url, init) => {
    const answer = await real(url, init);
    if (!String(url).includes(PART)) return answer;
    return new Response((await answer.text()).replaceAll(FROM, TO), { status: answer.status, headers: answer.headers });
  };
"""


async def with_answers(page: Page, system: System, part: str, before: str, after: str) -> None:
    """Load the swap page again, with some text replaced in all answers of the paths that have `part` in them."""
    given = ", ".join(
        f"{name} = {json.dumps(value)}" for name, value in (("PART", part), ("FROM", before), ("TO", after))
    )
    await page.ask("Page.addScriptToEvaluateOnNewDocument", source=f"const {given};{ANSWERS}")
    await page.ask("Page.navigate", url=f"{system.plan.console_url}/?again#/swap")


async def test_an_aggregator_that_moves_the_point(system: System, open_page: Open) -> None:
    """Where the chain says other decimals than the aggregator, nothing can be signed, and the page says so."""
    page = await open_page("network")
    await with_answers(page, system, "/api/v1/tokens", '"decimals":6', '"decimals":5')
    await press(page, "demonstration")
    await page.until("/by the aggregator USDC-c76f1f has 5 decimals, by the chain 6/.test(document.body.textContent)")
    await press(page, "fund")
    await page.until("/balance [1-9]/.test(document.body.textContent)")
    assert await page.value("document.getElementById('swap').disabled") is True


async def test_no_chain_to_ask(system: System, open_page: Open) -> None:
    """Where nobody but the aggregator says the decimals, smallest units are agreed to, for each amount."""
    page = await open_page("network")
    await with_answers(page, system, "settings.json", '"chain":true', '"chain":false')
    await press(page, "demonstration")
    await page.until("/I pay 1000000000 smallest units of USDC-c76f1f/.test(document.body.textContent)")
    assert await page.value("document.getElementById('swap').disabled") is True
    await page.value("document.getElementById('agreed').click()")
    await page.until(READY)
    await page.value(
        "(() => { const box = document.getElementById('amount-in'); box.value = '7';"
        " box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    await page.until("/I pay 7000000 smallest units of USDC-c76f1f/.test(document.body.textContent)")
    assert await page.value("document.getElementById('swap').disabled") is True


async def test_what_is_no_amount(open_page: Open) -> None:
    """What is no amount is refused in words, and no number with a comma in the wrong place is taken for another."""
    page = await open_page("swap")
    await page.until("document.querySelector('.facts') !== null")
    for text in ("1,5", "abc", "1.0000001", "-3"):
        await page.value(
            "(() => { const box = document.getElementById('amount-in'); box.value = "
            f"{json.dumps(text)}; box.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
        )
        await page.until("document.getElementById('amount-in').getAttribute('aria-invalid') === 'true'")
        assert await page.value("document.querySelector('.field .note.bad') !== null")


async def test_a_slow_network(system: System, open_page: Open) -> None:
    """With half a second of delay and 50 kB/s the page comes, and says what it waits for."""
    page = await open_page("network")
    await page.ask("Network.setCacheDisabled", cacheDisabled=True)
    await page.ask(
        "Network.emulateNetworkConditions",
        offline=False, latency=500, downloadThroughput=50_000, uploadThroughput=50_000,
    )  # fmt: skip
    await page.ask("Page.navigate", url=f"{system.plan.console_url}/?slow#/swap")
    await page.until("/Loading/.test(document.body.textContent)")
    await page.until("document.querySelector('.route path') !== null")
    assert page.complaints == []


EXTENSION = """
  window.multiversxWallet = true;
  const signer = import("/vendor/millrace/ed25519.js").then(({ Ed25519Signer }) => Ed25519Signer.fromPem(PEM));
  addEventListener("message", async ({ data: { target, type, data } }) => {
    if (target !== "erdw-inpage") return;
    const wallet = await signer;
    const changed = (transaction) => ({ ...transaction, ...CHANGES });
    const sign = () => Promise.all(data.transactions.map((transaction) => wallet.sign(changed(transaction))));
    const answer = type === "connect" ? { address: wallet.address } : await sign();
    postMessage({ target: "erdw-contentScript", type: type + "Response", data: answer }, location.origin);
  });
"""


@pytest.mark.parametrize("changes", [{}, {"gasLimit": 1}])
async def test_a_wallet_of_ones_own(system: System, open_page: Open, changes: dict[str, object]) -> None:
    """A browser extension signs; what it has changed is found before anything is sent."""
    key = await system.wallet()
    page = await open_page("network")
    stand_in = f"const PEM = {json.dumps(key.to_pem())}; const CHANGES = {json.dumps(changes)};{EXTENSION}"
    await page.ask("Page.addScriptToEvaluateOnNewDocument", source=stand_in)
    await page.ask("Page.navigate", url=f"{system.plan.console_url}/?again#/swap")
    await press(page, "extension")
    await press(page, "swap")
    if changes:
        await page.until(f"/Stopped/.test({STEPS})")
        assert "The wallet did not sign. Nothing was sent" in await page.value(STEPS)
        return
    await page.until(f"/Executed/.test({STEPS})")
    assert "Signed by your wallet" in await page.value(STEPS)
    assert (await system.chain.balances(encode(key.public)))[GET] > 0
