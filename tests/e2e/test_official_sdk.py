"""The official SDKs against the whole running system: guarded accounts, swaps told by an SDK's hash, the page's code.

The JavaScript one is marked `foreign`: see `tests/javascript.py`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import multiversx_sdk as sdk
import pytest
import pytest_asyncio
from rich.console import Console

from javascript import sdk_folder
from millrace.system.demo import start
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports
from millrace.system.processes import Processes
from millrace.system.story import Story
from waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "relayer.md"
DEADLINE = 60.0
EPOCH = 8
"""Rounds: guardians count from the next one on."""
EGLD, DOLLARS = 10**18, "USDC-c76f1f"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plan(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Plan]:
    """The whole system, started once, with short epochs and the market at rest."""
    folder = tmp_path_factory.mktemp("system")
    plan = Plan(Ports.free(), folder, poll_seconds=0.5)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MILLRACE_LOCALNET__ROUNDS_PER_EPOCH", str(EPOCH))
        async with Processes(folder / "logs") as processes, LocalChain(plan.chain_url) as chain:
            await start(plan, processes, Story(Console(file=io.StringIO())))
            await chain.stop_traders()
            yield plan


class User:
    """Somebody who writes with the SDK, and sends to the services as it writes."""

    def __init__(self, plan: Plan, http: aiohttp.ClientSession) -> None:
        self.plan, self.http = plan, http
        self.account = sdk.Account(sdk.UserSecretKey.generate())
        self.address: sdk.Address = self.account.address
        self.name: str = self.address.to_bech32()
        self.relayer_url = f"http://127.0.0.1:{plan.ports.relayer_http}"

    async def get(self, url: str, **query: str) -> Any:
        async with self.http.get(url, params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def post(self, url: str, body: Any) -> Any:
        async with self.http.post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def is_given(self, token: str, amount: int) -> None:
        await self.post(self.plan.chain_url + "/faucet", {"address": self.name, "token": token, "amount": str(amount)})

    async def has(self, token: str) -> int:
        if token == "EGLD":
            return int((await self.get(f"{self.plan.chain_url}/accounts/{self.name}"))["balance"])
        found = await self.get(f"{self.plan.chain_url}/address/{self.name}/esdt/{token}")
        return int(found["data"]["tokenData"]["balance"])

    async def guardian(self) -> str:
        """Whose signature counts, or would."""
        found = await self.get(f"{self.plan.chain_url}/address/{self.name}/guardian-data")
        return str(found["data"]["guardianData"].get("activeGuardian", {}).get("address", ""))

    async def relayer(self) -> sdk.Address:
        shard = (await self.get(f"{self.plan.chain_url}/accounts/{self.name}"))["shard"]
        named = (await self.get(self.relayer_url + "/v1/relayers"))["relayers"]
        return sdk.Address.new_from_bech32(next(item["address"] for item in named if item["shard"] == shard))

    async def signed(
        self, tx: sdk.Transaction, guardian: User | None = None, *, relayed: bool = True
    ) -> sdk.Transaction:
        """A transaction with all that its way needs, signed by its sender and guardian."""
        tx.nonce = (await self.get(f"{self.plan.chain_url}/accounts/{self.name}"))["nonce"]
        if relayed:
            tx.relayer, tx.gas_limit = await self.relayer(), tx.gas_limit + 50_000
        if guardian:
            tx.guardian, tx.options, tx.gas_limit = guardian.address, 2, tx.gas_limit + 50_000
            tx.guardian_signature = guardian.account.sign_transaction(tx)
        tx.signature = self.account.sign_transaction(tx)
        return tx

    async def relays(self, tx: sdk.Transaction) -> str:
        """How a transaction ends, or why it is refused."""
        reply = await self.post(self.relayer_url + "/v1/relay?wait=final", {"transactions": [tx.to_dictionary()]})
        if reply["failed"]:
            return f"{reply['failed'][0]['reason']}: {reply['failed'][0].get('detail')}"
        return str(reply["results"][0]["transaction"]["state"])


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE)) as session:
        yield session


async def test_the_pages_transfer(plan: Plan, http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python of the relayer's page runs as it stands there."""
    user, receiver = User(plan, http), User(plan, http)
    await user.is_given("EGLD", 5)
    where = {"CHAIN_API": plan.chain_url, "CHAIN_ID": "local", "RELAYER": user.relayer_url}
    await asyncio.to_thread(exec, _of_the_page("python"), where | {"me": user.account, "receiver": receiver.address})
    assert capsys.readouterr().out == "success\n"
    assert (await user.has("EGLD"), await receiver.has("EGLD")) == (0, 5)


@pytest.mark.foreign
async def test_the_pages_transfer_in_javascript(plan: Plan, http: aiohttp.ClientSession) -> None:
    """The JavaScript of the relayer's page runs as it stands there."""
    user, receiver = User(plan, http), User(plan, http)
    await user.is_given("EGLD", 5)
    where = {"CHAIN_API": plan.chain_url, "CHAIN_ID": "local", "RELAYER": user.relayer_url}
    names = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in where.items())
    people = f"""
import {{ Account, UserSecretKey }} from "@multiversx/sdk-core";
const me = new Account(UserSecretKey.fromString("{user.account.secret_key.hex()}"));
const receiver = Address.newFromBech32("{receiver.name}");
"""
    process = await asyncio.create_subprocess_exec(
        *("node", "--input-type=module", "-e", names + people + _of_the_page("js")),
        cwd=sdk_folder(),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert printed.decode().splitlines()[-1] == "success"
    assert (await user.has("EGLD"), await receiver.has("EGLD")) == (0, 5)


def _of_the_page(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


async def test_a_guarded_account(plan: Plan, http: aiohttp.ClientSession) -> None:
    """An account gets a guardian, is guarded, changes him and is set free: relayed, but for naming one without him."""
    user, guardian, other = (User(plan, http) for _ in range(3))
    await user.is_given("EGLD", EGLD)
    make = sdk.AccountTransactionsFactory(sdk.TransactionsFactoryConfig("local"))

    def transfer() -> sdk.Transaction:
        return sdk.Transaction(user.address, other.address, gas_limit=50_000, chain_id="local", value=1)

    async def has_guardian(who: User) -> bool:
        return await user.guardian() == who.name

    named = make.create_transaction_for_setting_guardian(user.address, guardian.address, "service")
    assert await user.relays(await user.signed(named)) == "success"
    await until(lambda: has_guardian(guardian), DEADLINE, 0.1)
    assert await user.relays(await user.signed(transfer())) == "success"
    guard = make.create_transaction_for_guarding_account(user.address)
    assert await user.relays(await user.signed(guard)) == "success"

    assert guardian.name in await user.relays(await user.signed(transfer())), "the refusal names who has to sign"
    assert "invalid guardian: " in await user.relays(await user.signed(transfer(), other))
    unsigned = await user.signed(transfer(), guardian)
    unsigned.guardian_signature = bytes(64)
    assert "invalid guardian signature" in await user.relays(unsigned)
    paying = await user.signed(transfer(), guardian)
    paying.guardian = await user.relayer()
    paying.signature = user.account.sign_transaction(paying)
    assert "relayer key not allowed" in await user.relays(paying)
    assert await user.relays(await user.signed(transfer(), guardian)) == "success"

    asked = {"sender": user.name, "receiver": other.name, "value": "1", "guardian": guardian.name}
    prepared = await user.post(user.relayer_url + "/v1/prepare", {"transaction": asked})
    made = sdk.Transaction.new_from_dictionary({"signature": "", **prepared["transaction"]})
    made.signature = user.account.sign_transaction(made)
    made.guardian_signature = guardian.account.sign_transaction(made)
    assert await user.relays(made) == "success"

    lost = make.create_transaction_for_setting_guardian(user.address, other.address, "service")
    sent = await user.signed(lost, relayed=False)
    reply = await user.post(user.relayer_url + "/v1/broadcast", {"transactions": [sent.to_dictionary()]})
    assert reply["status"] == "completed", reply
    await until(lambda: has_guardian(other), DEADLINE, 0.1)
    assert other.name in await user.relays(await user.signed(transfer(), guardian))
    free = make.create_transaction_for_unguarding_account(user.address)
    assert await user.relays(await user.signed(free, other)) == "success"
    assert await user.relays(await user.signed(transfer())) == "success"
    assert await other.has("EGLD") == 4


async def test_a_token_of_few_decimals_for_egld_and_back(plan: Plan, http: aiohttp.ClientSession) -> None:
    """Each swap is signed and hashed by the SDK, told by that hash, and pays to the unit what was quoted."""
    user = User(plan, http)
    await user.is_given("EGLD", EGLD)
    tokens = (await user.get(plan.chain_url + "/pools"))["tokens"]
    few = min((item for item in tokens if not item["isLp"]), key=lambda item: (item["decimals"], item["identifier"]))
    amount = EGLD
    for pay, get in (("EGLD", few["identifier"]), (few["identifier"], "EGLD")):
        before = {token: await user.has(token) for token in (pay, get)}
        quote = await _fresh(user, {"from": pay, "to": get, "amountIn": str(amount), "sender": user.name})
        asked = quote["transaction"]
        tx = await user.signed(
            sdk.Transaction(
                user.address,
                sdk.Address.new_from_bech32(asked["receiver"]),
                gas_limit=quote["estimatedGasLimit"],
                chain_id="local",
                value=int(asked["value"]),
                data=base64.b64decode(quote["txData"]),
            )
        )
        assert await _told(user, tx) == "success"
        expected = int(quote["amountOut"])
        await until(lambda get=get, at=before[get] + expected: _holds(user, get, at), DEADLINE, 0.1)
        assert await user.has(pay) == before[pay] - amount
        amount = expected


async def _holds(user: User, token: str, amount: int) -> bool:
    return await user.has(token) == amount


async def _fresh(user: User, asked: dict[str, str]) -> Any:
    """A quote of the market as it is now."""
    newest = (await user.get(user.plan.chain_url + "/pools"))["block"]["nonce"]
    quote: dict[str, Any] = {}

    async def is_fresh() -> bool:
        quote.update(await user.get(user.plan.aggregator_url + "/api/v1/quote", **asked))
        return bool(quote["snapshot"]["blockNonce"] >= newest)

    await until(is_fresh, DEADLINE, 0.1)
    return quote


async def _told(user: User, tx: sdk.Transaction) -> str:
    """What the stream tells of a transaction that was subscribed to by the SDK's hash, then relayed."""
    sdk_hash = sdk.TransactionComputer().compute_transaction_hash(tx).hex()
    async with user.http.ws_connect(user.plan.relayer_ws_url) as ws:
        await ws.send_json({"action": "subscribe", "topic": f"tx-status/{sdk_hash}"})
        assert (await ws.receive_json(timeout=DEADLINE))["status"] == "ok"
        await ws.send_json({"action": "relay", "tx": tx.to_dictionary()})
        reply = await ws.receive_json(timeout=DEADLINE)
        assert reply["status"] == "completed", reply
        push = await ws.receive_json(timeout=DEADLINE)
        assert push["data"]["hash"] == sdk_hash
        return str(push["data"]["status"])
