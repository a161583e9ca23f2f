"""The official SDKs' network providers against a running chain: what their users do first works as on a live network.

The Python SDK is always there. The JavaScript one needs Node and npm: set MILLRACE_JS_PREFIX to a directory for its
packages, and run `./run test -m foreign tests/localnet/test_official_sdk.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
import multiversx_sdk as sdk
import pytest
from multiversx_sdk.network_providers.errors import TransactionFetchingError

from javascript import sdk_folder
from millrace.localnet import app
from millrace.localnet.market import market
from millrace.localnet.settings import NEVER, LocalnetSettings
from millrace.system.ports import free_ports
from waiting import until

EGLD, DOLLARS = 10**18, "USDC-c76f1f"
SMALL = LocalnetSettings(pools=30, tokens=12, round_ms=40, traders_per_second=0, gossip=False, notifier_url="")
WRAPPER = sdk.Address(market.generate(1, SMALL.network(), pools=30, tokens=12).addresses.wrapper, "erd")
TOKENS = sdk.Address.new_from_bech32("erd1qqqqqqqqqqqqqqqpqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqzllls8a5w6u")
PATIENCE = sdk.AwaitingOptions(
    polling_interval_in_milliseconds=20, timeout_in_milliseconds=10_000, patience_in_milliseconds=0
)
PROVIDERS = {"api": sdk.ApiNetworkProvider, "proxy": sdk.ProxyNetworkProvider}


@pytest.fixture(params=[NEVER, 0], ids=["earlier", "present"])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A small chain with fast rounds in either format, nobody but its users trading."""
    port = free_ports(1)[0]
    settings = msgspec.structs.replace(SMALL, port=port, supernova_epoch=request.param)
    stop, where = asyncio.Event(), f"http://127.0.0.1:{port}"
    task = asyncio.create_task(app.run(settings, stop))
    async with aiohttp.ClientSession(where) as http:

        async def answers() -> bool:
            try:
                async with http.get("/health") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(answers)
    yield where
    stop.set()
    await asyncio.wait_for(task, 10)


class User:
    """Somebody with a key and one of the SDK's providers; the SDK waits in a thread of its own."""

    def __init__(self, url: str, kind: str) -> None:
        self.url = url
        self.provider: Any = PROVIDERS[kind](url)
        self.account = sdk.Account(sdk.UserSecretKey(bytes([7]) * 32))
        self.address = self.account.address
        self.transfers = sdk.TransferTransactionsFactory(sdk.TransactionsFactoryConfig("local"))

    async def ask(self, what: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(what, *args)

    async def is_given(self, token: str, amount: int) -> None:
        grant = {"address": self.address.to_bech32(), "token": token, "amount": str(amount)}
        async with aiohttp.ClientSession(self.url) as http, http.post("/faucet", json=grant) as answer:
            assert answer.status == 200, await answer.text()

    def signed(self, transaction: sdk.Transaction, nonce: int) -> sdk.Transaction:
        transaction.nonce = nonce
        transaction.signature = self.account.sign_transaction(transaction)
        return transaction

    def sends_dollars(self, nonce: int, amount: int) -> sdk.Transaction:
        transfer = [sdk.TokenTransfer(sdk.Token(DOLLARS), amount)]
        return self.signed(
            self.transfers.create_transaction_for_esdt_token_transfer(self.address, WRAPPER, transfer), nonce
        )

    async def ended(self, tx_hash: bytes) -> Any:
        return await self.ask(self.provider.await_transaction_completed, tx_hash, PATIENCE)


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_what_an_account_has(url: str, kind: str) -> None:
    """Accounts, what they hold, tokens' definitions and the network's state are read by either provider."""
    user = User(url, kind)
    nobody = sdk.UserSecretKey(bytes([8]) * 32).generate_public_key().to_address()
    await user.is_given("EGLD", EGLD)
    await user.is_given(DOLLARS, 77)
    provider = user.provider
    account = await user.ask(provider.get_account, user.address)
    assert (account.nonce, account.balance, account.is_guarded) == (0, EGLD, False)
    assert (await user.ask(provider.get_account, nobody)).balance == 0
    (held,) = await user.ask(provider.get_fungible_tokens_of_account, user.address)
    assert (held.token.identifier, held.amount) == (DOLLARS, 77)
    assert (await user.ask(provider.get_token_of_account, user.address, sdk.Token(DOLLARS))).amount == 77
    assert await user.ask(provider.get_non_fungible_tokens_of_account, user.address) == []
    assert (await user.ask(provider.get_definition_of_fungible_token, DOLLARS)).decimals == 6
    status = await user.ask(provider.get_network_status, 1)
    assert 0 < status.highest_final_block_nonce <= status.block_nonce
    query = sdk.SmartContractQuery(TOKENS, "getTokenProperties", [DOLLARS.encode()])
    answer = await user.ask(provider.query_contract, query)
    assert (answer.return_code, b"NumDecimals-6" in answer.return_data_parts) == ("ok", True)
    query = sdk.SmartContractQuery(TOKENS, "nonsense", [])
    assert (await user.ask(provider.query_contract, query)).return_code == "user error"


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_what_becomes_of_transactions(url: str, kind: str) -> None:
    """A call is awaited and its outcome parsed; one that fails is completed, too; of several each has its hash."""
    user = User(url, kind)
    await user.is_given("EGLD", EGLD)
    await user.is_given(DOLLARS, 77)
    calls = sdk.SmartContractTransactionsFactory(sdk.TransactionsFactoryConfig("local"))
    wrap = calls.create_transaction_for_execute(user.address, WRAPPER, "wrapEgld", 10_000_000, native_transfer_amount=5)
    ended = await user.ended(await user.ask(user.provider.send_transaction, user.signed(wrap, 0)))
    assert ended.status.is_successful and ended.function == "wrapEgld"
    outcome = sdk.SmartContractTransactionsOutcomeParser().parse_execute(ended)
    assert (outcome.return_code, outcome.values) == ("ok", [])
    other = user.sends_dollars(3, 5)
    sent = [user.sends_dollars(1, 5), user.sends_dollars(2, 5), other]
    other.signature = bytes(64)
    count, hashes = await user.ask(user.provider.send_transactions, sent)
    assert (count, bool(hashes[0]), bool(hashes[1]), hashes[2]) == (2, True, True, b"")
    ended = await user.ended(hashes[1])
    assert ended.status.is_failed and ended.nonce == 2 and ended.data == sent[1].data
    with pytest.raises(sdk.NetworkProviderError, match="lowerNonceInTx: true"):
        await user.ask(user.provider.send_transaction, user.sends_dollars(0, 6))
    with pytest.raises(TransactionFetchingError):
        await user.ask(user.provider.get_transaction, bytes(32))


async def test_what_an_account_sent(url: str) -> None:
    """The chain API lists an account's transactions, newest first, page by page."""
    user = User(url, "api")
    await user.is_given("EGLD", EGLD)
    native = [user.transfers.create_transaction_for_native_token_transfer(user.address, user.address, 1) for _ in "12"]
    sent = [user.signed(transaction, nonce) for nonce, transaction in enumerate(native)]
    _, hashes = await user.ask(user.provider.send_transactions, sent)
    assert [entry.hash for entry in await user.ask(user.provider.get_transactions, user.address)] == hashes[::-1]
    page = {"from": 1, "size": 1}
    assert [entry.hash for entry in await user.ask(user.provider.get_transactions, user.address, page)] == hashes[:1]


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_what_blocks_there_are(url: str, kind: str) -> None:
    """The newest block is read by either provider, found again by its hash, and follows the one before it."""
    user = User(url, kind)
    await user.is_given("EGLD", 1)
    newest = await user.ask(user.provider.get_latest_block)
    of_shard = (newest.shard,) if kind == "proxy" else ()
    again = await user.ask(user.provider.get_block, *of_shard, newest.hash)
    assert (again.nonce, again.hash, again.round) == (newest.nonce, newest.hash, newest.round)
    before = await user.ask(user.provider.get_block, *of_shard, newest.previous_hash)
    assert (before.nonce, before.shard) == (newest.nonce - 1, newest.shard)
    with pytest.raises(sdk.NetworkProviderError, match="block not found"):
        await user.ask(user.provider.get_block, *of_shard, bytes(32))


@pytest.mark.foreign
async def test_the_javascript_providers(url: str) -> None:
    """The JavaScript SDK's providers read accounts and tokens, and see how a call and a refused transfer end."""
    user = User(url, "api")
    await user.is_given("EGLD", EGLD)
    await user.is_given(DOLLARS, 77)
    seed, wrapper = user.account.secret_key.hex(), WRAPPER.to_bech32()
    process = await asyncio.create_subprocess_exec(
        *("node", "providers.mjs", url, seed, wrapper, DOLLARS), cwd=sdk_folder(), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    wrapped = ["WEGLD-bd4d79", "5"]
    expected = {"guarded": False, "one": "77", "decimals": 6, "final": True, "gas": True, "refused": True}
    expected |= {"call": ["success", "wrapEgld", "ok"]}
    by_api, by_proxy = (json.loads(line) for line in printed.splitlines())
    assert by_api == expected | {"held": [[DOLLARS, "77"]]}
    assert by_proxy == expected | {"held": [[DOLLARS, "77"], wrapped]}
