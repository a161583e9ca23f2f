"""What relayers and aggregators give to sign is what was asked, or it is not signed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from millrace.aggregator.settings import AggregatorSettings
from millrace.chain import call as calls
from millrace.dex import aggregator_contract as contracts
from millrace_client import (
    Millrace,
    Mismatch,
    Patience,
    Relayer,
    Transaction,
    TransactionError,
    Wallet,
    WalletError,
)
from millrace_client import address as addresses
from millrace_client.aggregator import Aggregator
from millrace_client.checks import checked_prepared
from millrace_client.messages import GasRules, RelayerKey, Relayers
from millrace_client.quotes import MultiSwap, Quote
from millrace_client.swap_checks import ANY_CONTRACT, CONTRACTS, Bounds, checked_multi_swap, checked_quote
from millrace_client.transaction import GUARDED
from servers.fake_relayer import PAYER, FakeRelayer, status_of

WALLET, OTHER = Wallet(bytes(range(32))), Wallet(bytes(32))
CONTRACT = PAYER
ELSEWHERE = addresses.encode(bytes(8) + b"\1" * 24)
ASKED = Transaction(
    value="0",
    receiver=CONTRACT,
    sender=WALLET.address,
    gas_price=10**9,
    gas_limit=20_000_000,
    data="c3dhcA==",
    chain_id="local",
    version=2,
)
TOLD: dict[str, Any] = {"nonce": 7, "relayer": OTHER.address, "gas_limit": 20_050_000, "gas_price": 2 * 10**9}
SNAPSHOT = {"id": "s"}


def changed(tx: Transaction, **fields: Any) -> Transaction:
    return msgspec.structs.replace(tx, **fields)


# ---- relayer


def test_only_four_fields_are_the_relayers() -> None:
    """Nonce, relayer, gas and price are taken over, and signatures are not."""
    told = changed(ASKED, **TOLD, signature="aa", relayer_signature="bb", guardian_signature="cc")
    assert checked_prepared(ASKED, told, GasRules()) == changed(ASKED, **TOLD)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("sender", {"sender": OTHER.address}),
        ("receiver", {"receiver": OTHER.address}),
        ("value", {"value": "5000"}),
        ("data", {"data": ""}),
        ("chainID", {"chain_id": "1"}),
        ("version", {"version": 1}),
        ("options", {"options": 1}),
        ("senderUsername", {"sender_username": "YQ=="}),
        ("receiverUsername", {"receiver_username": "YQ=="}),
        ("guardian", {"guardian": OTHER.address}),
        ("relayer", {"relayer": ""}),
        ("relayer", {"relayer": WALLET.address}),
        ("nonce", {"nonce": None}),
        ("gasLimit", {"gas_limit": 20_050_001}),
        ("gasLimit", {"gas_limit": 19_999_999}),
        ("gasPrice", {"gas_price": 10**10 + 1}),
        ("gasPrice", {"gas_price": 0}),
    ],
)
async def test_another_field_is_not_signed(service: FakeRelayer, field: str, fields: dict[str, Any]) -> None:
    """A relayer that changes any other field, or more than gas for relaying, gets no signature; the field is named."""
    told = msgspec.to_builtins(changed(ASKED, **TOLD | fields))
    service.http = [web.json_response({"sponsored": True, "shard": 0, "transaction": told})]
    async with Millrace("http://127.0.0.1:9", service.url, service.ws_url, patience=Patience(tries=1)) as client:
        with pytest.raises(Mismatch, match=f"the relayer answered with another {field} ") as mismatch:
            await client.send(ASKED, WALLET)
    assert (mismatch.value.service, mismatch.value.field) == ("relayer", field)
    assert service.requests == []


def test_what_was_given_stays() -> None:
    """A nonce and a relayer that were given are no others; a limit that was given holds in place of the usual one."""
    told = changed(ASKED, **TOLD)
    for given, field in (({"nonce": 8}, "nonce"), ({"relayer": PAYER}, "relayer")):
        with pytest.raises(Mismatch) as mismatch:
            checked_prepared(changed(ASKED, **given), told, GasRules())
        assert mismatch.value.field == field
    with pytest.raises(Mismatch, match="at most 1999999999"):
        checked_prepared(ASKED, told, GasRules(), 2 * 10**9 - 1)
    dear = changed(told, gas_price=10**11)
    assert checked_prepared(ASKED, dear, GasRules(), 10**11).gas_price == 10**11


def test_gas_of_guarded_and_of_unknown() -> None:
    """A guardian costs as much again as a relayer; without a gas limit the least that the data needs is known here."""
    guarded = changed(ASKED, options=GUARDED, guardian=PAYER)
    told = changed(guarded, **TOLD | {"gas_limit": 20_100_000})
    assert checked_prepared(guarded, told, GasRules()).guardian == PAYER
    with pytest.raises(Mismatch, match="gasLimit"):
        checked_prepared(guarded, changed(told, gas_limit=20_100_001), GasRules())
    with pytest.raises(Mismatch, match="neither the sender nor its guardian"):
        checked_prepared(guarded, changed(told, relayer=PAYER), GasRules())
    open_gas = changed(ASKED, gas_limit=0)
    least = 50_000 + 4 * 1_500 + 50_000
    assert checked_prepared(open_gas, changed(ASKED, **TOLD | {"gas_limit": least}), GasRules()).gas_limit == least
    with pytest.raises(Mismatch, match="gasLimit"):
        checked_prepared(open_gas, changed(ASKED, **TOLD | {"gas_limit": least + 1}), GasRules())


async def test_rules_that_a_relayer_tells_allow_nothing(service: FakeRelayer, relayer: Relayer) -> None:
    """Without `/v1/prepare`, and for the further ones of several, its gas rules are within the same bounds."""
    key = RelayerKey(shard=addresses.shard_of(WALLET.public), address=OTHER.address)
    greedy = Relayers(chain_id="local", relayers=[key], gas=GasRules(extra_gas_relayed=10**9))
    rules = web.Response(body=msgspec.json.encode(greedy), content_type="application/json")
    prepared = msgspec.to_builtins(changed(ASKED, **TOLD))
    service.http = [web.json_response({"sponsored": True, "shard": 0, "transaction": prepared}), rules]
    with pytest.raises(Mismatch, match="gasLimit"):
        await relayer.prepare_all([ASKED, ASKED])
    dear = Relayers(chain_id="local", relayers=[key], gas=GasRules(min_gas_price=10**12))
    bodies = [msgspec.json.encode(dear)] * 2
    service.http = [web.Response(status=404), *(web.Response(body=b, content_type="application/json") for b in bodies)]
    async with Relayer(service.url, service.ws_url) as another:  # one that has not heard the other rules
        with pytest.raises(Mismatch, match="gasPrice"):
            await another.prepare(changed(ASKED, nonce=1))


async def test_none_of_several(relayer: Relayer) -> None:
    """Nothing to prepare is nothing, and asks nobody."""
    assert await relayer.prepare_all([]) == []


def test_what_is_shown_of_an_answer() -> None:
    """Of a value that a service made up nothing reaches a terminal that it would obey, and no more than a line."""
    text = str(Mismatch("relayer", "data", "\x1b[2Jpaid\n" + "x" * 500, "y"))
    assert "?[2Jpaid?x" in text and "\x1b" not in text and len(text) < 400


# ---- aggregator


def call(*parts: bytes) -> bytes:
    return b"@".join([parts[0], *(part.hex().encode() for part in parts[1:])])


def xo(least: int, token: bytes = b"B-2", referral: bytes = b"") -> list[bytes]:
    """The contract's endpoint with its least output, index of the output token, referral, and list of one token."""
    return [b"xo", bytes([least]), b"", referral, b"\1", token]


def quote(data: bytes, tx: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    made = {"sender": WALLET.address, "receiver": CONTRACT, "value": "0", "data": b64encode(data).decode()}
    made |= {"gasLimit": 1, "gasPrice": 10**9, "chainID": "1", "version": 2} | (tx or {})
    told = {"from": "A-1", "to": "B-2", "amountIn": "100", "amountOut": "90", "amountOutMin": "89", "txData": "eA=="}
    return told | {"priceImpact": 0.0, "slippage": 0.01, "transaction": made} | fields


def checked(answer: dict[str, Any], **asked: Any) -> Quote:
    usual: dict[str, Any] = {"from_token": "A-1", "to_token": "B-2", "amount_in": 100, "amount_out": None}
    usual |= {"sender": WALLET.address, "slippage": "0.01", "contract": None}
    return checked_quote(msgspec.convert(answer, Quote, strict=False), **usual | asked)


TOKENS = call(b"ESDTTransfer", b"A-1", b"\x64", *xo(89))
CREDITED = call(b"ESDTTransfer", b"A-1", b"\x64", *xo(89, referral=b"\7"))
EGLD = call(b"xo", *xo(89)[1:])
MULTI = call(b"MultiESDTNFTTransfer", addresses.decode(CONTRACT), b"\1", b"A-1", b"", b"\x64", *xo(89))
HOME = {"receiver": WALLET.address}


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        (quote(TOKENS), {}),
        (quote(TOKENS), {"contract": CONTRACT}),
        (quote(CREDITED), {"referral_id": 7}),
        (quote(CREDITED), {"referral_id": None}),
        (quote(TOKENS), {"amount_in": None, "amount_out": 90}),
        (quote(TOKENS, amountOutMin="85", slippage=0.05), {"slippage": None}),
        (quote(TOKENS), {"bounds": Bounds(100, 89)}),
        (quote(TOKENS, {"receiver": ELSEWHERE}), {"contract": ELSEWHERE}),
        (quote(TOKENS, {"receiver": ELSEWHERE, "chainID": "T"}), {"contract": ANY_CONTRACT}),
        (quote(TOKENS, {"receiver": CONTRACTS["D"], "chainID": "D"}), {}),
        (quote(TOKENS, {"chainID": "local"}), {}),
        (quote(MULTI, HOME), {"contract": CONTRACT}),
        (quote(EGLD, {"value": "100"}, **{"from": "EGLD"}), {"from_token": "EGLD"}),
        (quote(EGLD, {"value": "100"}, **{"from": "EGLD"}), {"from_token": "EGLD-000000"}),
    ],
)
def test_honest_quotes_are_signed(answer: dict[str, Any], asked: dict[str, Any]) -> None:
    """A token is sent with the call, alone or in a list; EGLD is the transaction's value."""
    assert checked(answer, **asked).amount_in == 100


def test_what_no_cycle_sells_may_stay_with_the_sender() -> None:
    """Of arbitrage a service pays in what its cycles sell: at most what was asked for. Of a swap it is just that."""
    same: dict[str, Any] = {"to_token": "A-1", "amount_in": 150}
    call_for_more = TOKENS.replace(b"422d32", b"412d31").replace(b"@59@", b"@6c@")
    answer = quote(call_for_more, to="A-1", amountOut="109", amountOutMin="108")
    assert checked(answer, **same).amount_in == 100
    for asked in ({"amount_in": 99}, {"to_token": "B-2"}, {"bounds": Bounds(amount_out_min=159)}):
        with pytest.raises(Mismatch):
            checked(answer, **(same | asked))


@pytest.mark.parametrize("pay", ["A-1", "EGLD"])
@pytest.mark.parametrize("get", ["B-2", "EGLD"])
def test_calls_as_the_service_writes_them(pay: str, get: str) -> None:
    """What millrace's own aggregator encodes is read here: tokens and EGLD, sold and bought, alone and together."""
    index = contracts.EGLD_INDEX if get == "EGLD" else 1
    program = contracts.Program(("W-0", "B-2"), (), (), (), 100, index)
    value = {"value": "100" if pay == "EGLD" else "0"}
    names = {"from": pay, "to": get, "amountOut": "101", "amountOutMin": "100"}
    asked: dict[str, Any] = {"from_token": pay, "to_token": get, "contract": CONTRACT}
    assert checked(quote(contracts.tx_data(program, pay, 100), value, **names), **asked).amount_out_min == 100
    with pytest.raises(Mismatch, match="output token"):
        other = msgspec.structs.replace(program, token_out=0)
        checked(quote(contracts.tx_data(other, pay, 100), value, **names), **asked)
    paid = calls.multi_transfer(
        addresses.decode(CONTRACT),
        [calls.TokenPayment(pay, 0, 100)],
        contracts.ENDPOINT,
        *contracts.encode_arguments(program),
    )
    assert checked(quote(paid, HOME, **names), **asked).amount_out_min == 100


@pytest.mark.parametrize(
    ("field", "answer", "asked"),
    [
        ("from", quote(TOKENS, **{"from": "C-3"}), {}),
        ("to", quote(TOKENS, to="C-3"), {}),
        ("amountIn", quote(TOKENS, amountIn="101"), {}),
        ("amountIn", quote(TOKENS), {"amount_in": 101}),
        ("amountOut", quote(TOKENS, amountOut="89"), {"amount_in": None, "amount_out": 90}),
        ("amountOutMin", quote(TOKENS, amountOutMin="88"), {}),
        ("amountOutMin", quote(TOKENS, amountOutMin="88", slippage=0.5), {}),
        ("slippage", quote(TOKENS, amountOutMin="45", slippage=0.5), {"slippage": None}),
        ("transaction.sender", quote(TOKENS, {"sender": OTHER.address}), {}),
        ("transaction.value", quote(TOKENS, {"value": "77"}), {}),
        ("transaction.value", quote(EGLD, {"value": "101"}, **{"from": "EGLD"}), {"from_token": "EGLD"}),
        ("transaction.value", quote(TOKENS, {"value": "100"}, **{"from": "EGLD"}), {"from_token": "EGLD"}),
        ("transaction.data", quote(call(b"ESDTTransfer", b"C-3", b"\x64", b"x")), {}),
        ("transaction.data", quote(call(b"ESDTTransfer", b"A-1", b"\x65", b"x")), {}),
        ("transaction.data", quote(call(b"ESDTTransfer", b"A-1", b"\x64")), {}),
        ("transaction.data", quote(call(b"ESDTTransfer", b"A-1", b"\x64", b"other")), {}),
        ("transaction.data", quote(call(b"ESDTTransfer", b"A-1", b"\x64", b"other")), {"contract": ANY_CONTRACT}),
        ("transaction.receiver", quote(TOKENS, {"receiver": ELSEWHERE}), {}),
        ("transaction.receiver", quote(TOKENS, {"receiver": ELSEWHERE, "chainID": "local"}), {}),
        ("transaction.receiver", quote(TOKENS, {"chainID": "D"}), {}),
        ("transaction.receiver", quote(TOKENS, {"chainID": "T"}), {}),
        ("transaction.receiver", quote(TOKENS, {"receiver": WALLET.address}), {"contract": ANY_CONTRACT}),
        ("amountIn", quote(TOKENS), {"amount_in": None, "amount_out": 90, "bounds": Bounds(amount_in_max=99)}),
        ("amountOutMin", quote(TOKENS), {"bounds": Bounds(amount_out_min=90)}),
        ("transaction.data", quote(b"ESDTTransfer@412d31"), {}),
        ("transaction.data", quote(b"thanks"), {}),
        ("transaction.data", quote(MULTI.replace(b"@01@", b"@02@", 1), HOME), {}),
        ("transaction.receiver", quote(TOKENS, {"receiver": OTHER.address}), {}),
        ("transaction.receiver", quote(TOKENS), {"contract": OTHER.address}),
        ("transaction.data, least output", quote(call(b"ESDTTransfer", b"A-1", b"\x64", *xo(88))), {}),
        ("transaction.data, output token", quote(call(b"ESDTTransfer", b"A-1", b"\x64", *xo(89, b"C-3"))), {}),
        ("transaction.data, referralId", quote(CREDITED), {}),
        ("transaction.data, referralId", quote(CREDITED), {"referral_id": 8}),
        ("transaction.data, referralId", quote(TOKENS), {"referral_id": 7}),
    ],
)
def test_other_quotes_are_not_signed(field: str, answer: dict[str, Any], asked: dict[str, Any]) -> None:
    """Another payment, receiver, token or least output than asked for is refused, and the field named."""
    with pytest.raises(Mismatch) as mismatch:
        checked(answer, **asked)
    assert (mismatch.value.service, mismatch.value.field) == ("aggregator", field)


def multi(*transactions: tuple[int, bytes], sender: Wallet = WALLET) -> MultiSwap:
    """A multi-swap whose batches sell so much of A-1."""
    short = {"amountOutShort": 1.0, "amountOutMinShort": 1.0}
    batches = [
        {"batchIndex": index, "inputs": [{"token": "A-1", "amount": amount, "amountShort": 1.0}], "amountOut": 90}
        | {"amountOutMin": 89, "routes": [], "txData": "", "estimatedGasLimit": 1, "estimatedBuiltinCalls": 1, **short}
        | {"transaction": quote(data, {"sender": sender.address, "receiver": sender.address})["transaction"]}
        for index, (amount, data) in enumerate(transactions)
    ]
    answer = {"to": "B-2", "amountOut": 90, "amountOutMin": 89, "slippage": 0.01, "feeBps": 0, "feeAmount": 0, **short}
    return msgspec.convert(
        answer | {"feeAmountShort": 0.0, "failedTokens": [], "batches": batches, "snapshot": SNAPSHOT}, MultiSwap
    )


def test_multi_swaps() -> None:
    """Each batch pays its inputs to the contract, and all of them together no more than was given."""
    asked: dict[str, Any] = {"sender": WALLET.address, "to_token": "B-2", "slippage": 0.01, "contract": CONTRACT}
    assert checked_multi_swap(multi((100, MULTI)), inputs={"A-1": 100}, **asked).batches
    for field, answer in {
        "inputs, A-1": multi((100, MULTI), (100, MULTI)),
        "transaction.data": multi((90, MULTI)),
        "transaction.data, referralId": multi((100, MULTI.replace(b"@59@@@01@", b"@59@@07@01@"))),
        "transaction.sender": multi((100, MULTI), sender=OTHER),
        "transaction.receiver": multi((100, MULTI.replace(addresses.decode(CONTRACT).hex().encode(), b"11" * 32))),
    }.items():
        with pytest.raises(Mismatch) as mismatch:
            checked_multi_swap(answer, inputs={"A-1": 100}, **asked)
        assert mismatch.value.field == field


def test_the_known_contracts() -> None:
    """What is pinned for a chain is what this repository's aggregator and local chain name there."""
    assert CONTRACTS["1"] == CONTRACTS["local"] == addresses.encode(contracts.CONTRACT) == AggregatorSettings().contract
    assert all(addresses.decode(text).startswith(bytes(8)) for text in CONTRACTS.values())
    with pytest.raises(TransactionError):
        Millrace(contract="erd1typo")


@pytest.fixture
async def liar() -> AsyncIterator[str]:
    """An aggregator that asks for something else than it was asked."""
    from aiohttp.test_utils import TestServer

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(quote(b"thanks", {"receiver": OTHER.address, "value": "77"}))

    app = web.Application()
    app.router.add_get("/api/v1/quote", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def test_a_lying_aggregator(liar: str, service: FakeRelayer) -> None:
    """Its quote is refused as it comes, and a quote that came another way before it is signed."""
    async with Aggregator(liar) as client:
        with pytest.raises(Mismatch, match=r"transaction\.value"):
            await client.quote("A-1", "B-2", amount_in=100, sender=WALLET.address)
    kept = msgspec.convert(quote(b"thanks", {"receiver": OTHER.address, "value": "77"}), Quote, strict=False)
    async with Millrace(liar, service.url, service.ws_url) as client:
        with pytest.raises(Mismatch, match=r"transaction\.value"):
            await client.swap(kept, WALLET)
        assert (await client.swap_all(multi(), WALLET)).handles == []
    assert service.requests == []


@pytest.fixture
async def honest() -> AsyncIterator[str]:
    """An aggregator that answers what it was asked, with a nonce that is behind and fields that are not its own."""
    from aiohttp.test_utils import TestServer

    async def answer(_: web.Request) -> web.Response:
        more = {"nonce": 1, "senderUsername": "YQ==", "relayer": OTHER.address}
        return web.json_response(quote(TOKENS, {"gasLimit": 20_000_000, "chainID": "local"} | more))

    app = web.Application()
    app.router.add_get("/api/v1/quote", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def test_a_guarded_swap(honest: str, service: FakeRelayer) -> None:
    """The guardian's wallet makes it a guarded transaction, with its gas, and signs it, too; another's is refused."""
    async with Millrace(honest, service.url, service.ws_url) as client:
        offer = await client.quote("A-1", "B-2", amount_in=100, sender=WALLET.address, slippage="0.01")
        service.told = {"gasLimit": 20_100_000}
        handle = await client.swap(offer, WALLET, OTHER)
        sent = handle.transaction
        assert (sent.options, sent.guardian, sent.nonce, sent.gas_limit) == (GUARDED, OTHER.address, 3, 20_100_000)
        assert (sent.relayer, sent.sender_username) == (PAYER, "")
        assert len(sent.guardian_signature) == 128 and sent.guardian_signature != sent.signature
        with pytest.raises(WalletError, match="guardian"):
            await client.send(changed(ASKED, options=GUARDED, guardian=PAYER), WALLET, OTHER)
        service.told = {"guardian": WALLET.address}
        with pytest.raises(Mismatch, match="guardian"):
            await client.swap(offer, WALLET, OTHER)
    assert [asked["action"] for asked in service.requests].count("relay") == 1


async def test_the_sender_pays(honest: str, service: FakeRelayer) -> None:
    """Not sponsored: the quote's own nonce, or the one that is given; no relayer, and broadcast."""
    async with Millrace(honest, service.url, service.ws_url) as client:
        offer = await client.quote("A-1", "B-2", amount_in=100, sender=WALLET.address)
        handles = [await client.swap(offer, WALLET, sponsored=False, nonce=nonce) for nonce in (None, 9)]
    assert [(handle.transaction.nonce, handle.transaction.relayer) for handle in handles] == [(1, ""), (9, "")]
    assert {asked["action"] for asked in service.requests} - {"subscribe", "unsubscribe"} == {"broadcast"}


@pytest.mark.parametrize(("ends", "sent"), [(["success", "success"], 2), (["fail"], 1)])
async def test_batches_one_by_one(service: FakeRelayer, ends: list[str], sent: int) -> None:
    """A batch is sent when the one before has ended well, and none after one that failed."""
    multi_swap = multi((100, MULTI), (100, MULTI))
    service.chain_of_transactions = "1"
    seen = []
    async with Millrace("http://127.0.0.1:9", service.url, service.ws_url) as client:
        async for handle in client.swap_each(multi_swap, WALLET):
            seen.append(handle)
            service.told = {"nonce": 3 + len(seen)}
            await service.push(status_of(handle.client_hash, ends[len(seen) - 1]))
    assert [handle.transaction.nonce for handle in seen] == [3, 4][:sent]
    assert [asked["action"] for asked in service.requests].count("relay") == sent
