"""Nonces, balances and policy: each refusal in its words, through the whole submission path."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import aiohttp
import pytest
from relayer_support import (
    GAS_PRICE,
    RELAYERS,
    BlockMaker,
    Chain,
    as_json,
    connected,
    raw,
    sign,
    start,
    submit,
    transfer,
    wallet,
)

from millrace.chain import address, call
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import chain_hash, client_hash, from_proto
from millrace.relayer import upkeep
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.rules.policy import PolicyError
from millrace.relayer.rules.policy_file import seal
from millrace.relayer.rules.stages import Origin
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.signing.wire import Answer

ALICE = wallet(1)


async def test_submission_reason_nonce_too_low(world: Any) -> None:
    """A nonce the account has used is too low."""
    await start(world)
    world.api.set(ALICE.public, 5, 10**18)
    assert await submit(world, transfer(ALICE, 4), transfer(ALICE, 5)) == ["nonce too low", "ok"]


async def test_submission_reason_nonce_too_high(world: Any) -> None:
    """The expected nonce is the account's plus what is in flight and in the same batch; above it is a gap."""
    await start(world)
    world.api.set(ALICE.public, 5, 10**18)
    assert await submit(world, transfer(ALICE, 6)) == ["nonce too high"]
    assert await submit(world, transfer(ALICE, 5), transfer(ALICE, 6), transfer(ALICE, 8)) == [
        "ok", "ok", "nonce too high",
    ]  # fmt: skip
    assert await submit(world, transfer(ALICE, 7)) == ["ok"]


async def test_nonce_gap_by_setting(world: Any) -> None:
    """`max_nonce_gap` lets later nonces in."""
    await start(world, max_nonce_gap=2)
    assert await submit(world, transfer(ALICE, 2), transfer(ALICE, 3)) == ["ok", "nonce too high"]


async def test_submission_reason_insufficient_balance(world: Any) -> None:
    """The sender covers value, and the fee unless a relayer does, on top of what it has in flight."""
    await start(world)
    fee = 50_000 * GAS_PRICE
    world.api.set(ALICE.public, 0, 100 + fee)
    plain = {"relayed": False, "gas_limit": 50_000}
    assert await submit(world, transfer(ALICE, value=101, **plain), kind="broadcast") == ["insufficient balance"]
    assert await submit(world, transfer(ALICE, value=fee + 101)) == ["insufficient balance"]
    assert await submit(world, transfer(ALICE, value=fee)) == ["ok"]
    assert await submit(world, transfer(ALICE, 1, value=101)) == ["insufficient balance"]
    assert await submit(world, transfer(ALICE, 1, value=100)) == ["ok"]


async def test_refusals_are_checked_against_fresh_knowledge(world: Any) -> None:
    """Before refusing for what it knows the relayer asks the chain again, at most ten times a second."""
    await start(world)
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    world.hub.save(BlockMaker(1).block(accounts={ALICE.public: (1, 10**18)}))
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="accounts")
    world.api.set(ALICE.public, 3, 10**18)
    assert await submit(world, transfer(ALICE, 3)) == ["nonce too high"]
    asked = len(world.api.asked)
    world.service.accounts._clock = lambda: time.monotonic() + 1.0
    assert await submit(world, transfer(ALICE, 3)) == ["ok"]
    assert len(world.api.asked) == asked + 1


async def test_unknown_account_without_chain_api(world: Any) -> None:
    """When nothing is known and nobody answers, nothing is guessed."""
    await start(world)
    world.api.down = True
    assert await submit(world, transfer(ALICE)) == ["account state unavailable"]


@pytest.mark.parametrize(
    ("policy", "changes", "reason"),
    [
        ("", {"gas_price": 2 * GAS_PRICE}, "ok"),
        ("", {"gas_price": 2 * GAS_PRICE + 1}, "gas price too high"),
        ("", {"gas_price": 2**63}, "gas price too high"),
        ("", {"gas_price": 2**64 - 1}, "gas price too high"),
        ("[caps]\ngas_limit = 200000", {"gas_limit": 200_000}, "ok"),
        ("[caps]\ngas_limit = 200000", {"gas_limit": 200_001}, "gas limit too high"),
        ("[caps]\nvalue = 5", {"value": 5}, "ok"),
        ("[caps]\nvalue = 5", {"value": 6}, "value too high"),
        ("[caps]\ndata_bytes = 2", {"data": b"xyz", "gas_limit": 300_000}, "data too large"),
        ("[caps]\nfee = 100000000000000", {}, "ok"),
        ("[caps]\nfee = 99999999999999", {}, "fee too high"),
        ("[budget]\nper_minute = 99999999999999", {}, "budget exhausted"),
        ("[quotas]\nsender_per_hour = 1", {}, "quota exhausted"),
        ("[quotas]\nip_per_hour = 1", {}, "quota exhausted"),
        ("[quotas]\nsender_in_flight = 0", {}, "too many transactions in flight"),
        ("paused_shards = [1]", {}, "shard paused"),
        ("paused_shards = [0, 2]", {}, "ok"),
        ('[lists]\ndeny_functions = ["foo"]', {"data": b"foo@01", "gas_limit": 300_000}, "function not allowed"),
        ('[lists]\nallow_functions = ["bar"]', {"data": b"bar@01", "gas_limit": 300_000}, "ok"),
        ('[lists]\nallow_functions = ["bar"]', {}, "function not allowed"),
    ],
)
async def test_policy(world: Any, policy: str, changes: dict[str, Any], reason: str) -> None:
    """Each entry of the policy file refuses beyond its bound and not at it."""
    await start(world, policy)
    assert await submit(world, transfer(ALICE, **changes)) == [reason]


async def test_lists_of_addresses(world: Any) -> None:
    """Senders and receivers can be listed, also the receiver inside a token transfer."""
    bob, eve = wallet(2), wallet(0, 4)
    await start(
        world,
        f'[lists]\ndeny_senders = ["{address.encode(bob.public)}"]\ndeny_receivers = ["{address.encode(eve.public)}"]',
    )
    inside = call.multi_transfer(eve.public, [call.TokenPayment("A-123456", 0, 1)])
    assert await submit(
        world,
        transfer(bob),
        transfer(ALICE, receiver=eve.public),
        transfer(ALICE, receiver=ALICE.public, data=inside, gas_limit=900_000),
        transfer(ALICE),
    ) == ["sender not allowed", "receiver not allowed", "receiver not allowed", "ok"]


async def test_row_1_self_relay_oracle(world: Any) -> None:
    """Sender, guardian or receiver equal to a relayer key is refused before anything is reserved."""
    await start(world)
    own = RELAYERS[1]
    inside = call.multi_transfer(own.public, [call.TokenPayment("A-123456", 0, 1)])
    reasons = await submit(
        world,
        transfer(own),
        transfer(ALICE, receiver=RELAYERS[2].public),
        transfer(ALICE, receiver=ALICE.public, data=inside, gas_limit=900_000),
        sign(transfer(ALICE), ALICE, guardian=own.public, options=2, gas_limit=200_000),
    )
    assert reasons == ["relayer key not allowed as sender, guardian or receiver"] * 4
    assert len(world.service.lifecycle.inflight) == 0


async def test_row_3_gas_price_follows_p90(world: Any) -> None:
    """The cap is twice what nine in ten pay, between the policy's floor and its absolute limit."""
    await start(world)
    world.service.statistics.gas.add(1, [(3 * GAS_PRICE, 1)] * 10, time.monotonic())
    assert await submit(world, transfer(ALICE, gas_price=6 * GAS_PRICE)) == ["ok"]
    assert await submit(world, transfer(ALICE, 1, gas_price=6 * GAS_PRICE + 1)) == ["gas price too high"]
    world.service.statistics.gas.add(1, [(90 * GAS_PRICE, 1)] * 1000, time.monotonic())
    assert await submit(world, transfer(ALICE, 1, gas_price=10 * GAS_PRICE + 1)) == ["gas price too high"]


async def test_row_6_revert_griefing(world: Any) -> None:
    """A sender whose sponsored transactions keep failing has to wait; others do not."""
    await start(world, "[quotas]\nfailures = 2")
    maker = BlockMaker(1)
    for nonce in range(2):
        tx = transfer(ALICE, nonce)
        assert await submit(world, tx) == ["ok"]
        entry = world.service.lifecycle.inflight.by_client_hash(_client(tx))
        whole = entry.tx
        accounts, failing = {ALICE.public: (nonce + 1, 10**18)}, {chain_hash(whole): "no"}
        block = maker.block([whole], accounts=accounts, failing=failing).SerializeToString()
        world.service.events.on_event("SaveBlock", block, 2 * nonce + 1)
        _finalise(world, maker, 2 * nonce + 2)
    world.api.set(ALICE.public, 2, 10**18)
    assert await submit(world, transfer(ALICE, 2)) == ["sender throttled"]
    assert await submit(world, transfer(wallet(1, 1))) == ["ok"]


async def test_fee_is_settled_and_audited(world: Any) -> None:
    """When a final block has the transaction its real fee counts, and the audit log proves the sum again."""
    await start(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    lifecycle = world.service.lifecycle
    key = RELAYERS[1].public
    assert lifecycle.sponsor.budgets.at_risk(key) == 100_000 * GAS_PRICE
    maker = BlockMaker(1)
    whole = lifecycle.inflight.entries()[0].tx
    world.service.events.on_event("SaveBlock", maker.block([whole]).SerializeToString(), 1)
    _finalise(world, maker, 2)
    assert lifecycle.sponsor.budgets.at_risk(key) == 0 and len(lifecycle.inflight) == 0
    await world.service.journal.flush()
    rows = world.service.journal.read("SELECT event, amount FROM audit ORDER BY id")
    assert rows == [("reserve", str(100_000 * GAS_PRICE)), ("settle", str(50_000 * GAS_PRICE))]


async def test_a_signed_nonce_stays_taken_when_the_chain_is_misread(world: Any) -> None:
    """With a chain API that lags behind, no second payload is signed for a nonce whose transaction is final."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    maker = BlockMaker(1)
    whole = world.service.lifecycle.inflight.entries()[0].tx
    world.service.events.on_event("SaveBlock", maker.block([whole]).SerializeToString(), 1)
    _finalise(world, maker, 2)
    other = transfer(ALICE, data=b"x", gas_limit=200_000)
    assert await submit(world, other, transfer(wallet(1, 1))) == ["nonce too low", "ok"]
    assert await submit(world, transfer(ALICE)) == ["ok"], "the same bytes get the same answer"
    await world.stop()
    await world.start()
    assert await submit(world, other) == ["nonce too low"]
    assert await submit(world, transfer(ALICE)) == ["ok"]


async def test_superseded_transaction_frees_its_nonce(world: Any) -> None:
    """When the chain is past a nonce whose transaction no block had, it is over and costs nothing.

    Where events were lost meanwhile a block may have had it: its fee counts as spent.
    """
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    maker = BlockMaker(1)
    world.service.events.on_event("SaveBlock", maker.block(accounts={ALICE.public: (1, 10**18)}).SerializeToString(), 1)
    _finalise(world, maker, 2)
    assert len(world.service.lifecycle.inflight) == 0
    assert (await _audit(world))[-1] == ("refund", 100_000 * GAS_PRICE)
    assert await submit(world, transfer(ALICE, data=b"x", gas_limit=200_000)) == ["nonce too low"]
    assert await submit(world, transfer(ALICE)) == ["nonce too low"], "no hash that is never sent"
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]


async def test_same_bytes_after_the_end(world: Any) -> None:
    """Who asks again for a transaction that is over gets the first answer word for word, signature included."""
    await start(world)
    tx = as_json(transfer(ALICE))
    async with connected(world.ws) as client, aiohttp.ClientSession(world.http) as http:
        first = await client.ask(action="relay", tx=tx)
        maker = BlockMaker(1)
        whole = world.service.lifecycle.inflight.entries()[0].tx
        block = maker.block([whole], accounts={ALICE.public: (1, 10**18)})
        world.service.events.on_event("SaveBlock", block.SerializeToString(), 1)
        _finalise(world, maker, 2)
        assert len(world.service.lifecycle.inflight) == 0
        assert await client.ask(action="relay", tx=tx) == first
        async with http.post("/v1/sign", json={"transactions": [tx]}) as answer:
            (signed,) = (await answer.json())["transactions"]
    assert signed == tx | {"relayerSignature": first["results"][0]["relayerSignature"]}


@pytest.mark.parametrize("how", ["a gap", "no stream", "written off and run", "written off, events lost"])
async def test_what_may_have_run_unseen_keeps_its_hash(world: Any, how: str) -> None:
    """Its bytes sent again get the same hash once its nonce is used, unless it is known that another used it."""
    await start(world, **({"hub_url": ""} if how == "no stream" else {}))
    tx, lifecycle, events = transfer(ALICE), world.service.lifecycle, world.service.events
    async with connected(world.ws) as client:
        first = await client.ask(action="relay", tx=as_json(tx))
        (entry,) = lifecycle.inflight.entries()
        reason = "it may have run: events were lost, or never came"
        world.service.accounts._clock = lambda: time.monotonic() + 1.0
        world.api.set(ALICE.public, 1, 10**18)
        match how:
            case "a gap":
                events.on_gap(1, 2)
                lifecycle.nonce_moved(ALICE.public, 1)
            case "no stream":
                lifecycle.expire(entry)
                await world.service.accounts.refresh(ALICE.public)
            case "written off and run":
                assert lifecycle.write_off(entry.client_hash)
                Chain(world, 1).final([entry.tx], accounts={ALICE.public: (1, 10**18)})
                reason = ""
            case _:
                assert lifecycle.write_off(entry.client_hash)
                events.on_gap(1, 2)
                lifecycle.nonce_moved(ALICE.public, 1)
                reason = ""
        assert await client.ask(action="relay", tx=as_json(tx)) == first
    assert await submit(world, transfer(ALICE, data=b"x", gas_limit=200_000)) == ["nonce too low"]
    found = await lifecycle.fates.find(entry.client_hash)
    assert found is not None and found[0].reason == reason


async def test_what_was_written_off_and_another_took_the_nonce_of(world: Any) -> None:
    """No hash is told of what surely never ran, and its nonce stays taken."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    assert world.service.lifecycle.write_off(client_hash(transfer(ALICE)))
    Chain(world, 1).final(accounts={ALICE.public: (1, 10**18)})
    await world.service.journal.flush()
    assert await submit(world, transfer(ALICE)) == ["nonce too low"]
    assert await world.service.journal.is_taken(ALICE.public, 0)


async def test_what_was_never_signed_is_never_said_to_be_accepted(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the nonce of a journalled transaction passes before anybody signed it, its bytes are too late."""
    await start(world, sign_wait=0)

    async def away(_: list[bytes]) -> list[Answer]:
        raise SignerError("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.service.signer, "sign", away)
        assert await submit(world, transfer(ALICE)) == ["pending"]
    maker = BlockMaker(1)
    block = maker.block(accounts={ALICE.public: (1, 10**18)})
    world.service.events.on_event("SaveBlock", block.SerializeToString(), 1)
    _finalise(world, maker, 2)
    assert await submit(world, transfer(ALICE)) == ["nonce too low"]


async def test_a_balance_is_asked_for_again_before_a_refusal(world: Any) -> None:
    """An account filled since it was last asked for is not refused for what it had."""
    await start(world)
    world.api.set(ALICE.public, 0, 5)
    assert await submit(world, transfer(ALICE, value=6)) == ["insufficient balance"]
    world.api.set(ALICE.public, 0, 6)
    world.service.accounts._clock = lambda: time.monotonic() + 1.0
    assert await submit(world, transfer(ALICE, value=6)) == ["ok"]


@pytest.mark.parametrize(("fee", "settled"), [(None, 100_000 * GAS_PRICE), (99_999 * GAS_PRICE, 99_999 * GAS_PRICE)])
async def test_what_goes_to_another_shard_is_settled_as_its_block_says(
    world: Any, fee: int | None, settled: int
) -> None:
    """A move's fee is known in the sender's shard; of a call it is not, so all that was reserved counts."""
    await start(world)
    assert await submit(world, transfer(ALICE, receiver=wallet(0).public)) == ["ok"]
    (entry,) = world.service.lifecycle.inflight.entries()
    assert world.service.lifecycle.included(entry.chain_hash, fee) == (ALICE.public, 1)
    assert (await _audit(world))[-1] == ("settle", settled)


async def test_the_chain_api_ends_only_what_is_sent_no_more(world: Any) -> None:
    """Its nonce may be of a block that is not final: while events tell everything nothing ends by it.

    Where events were lost what is still sent stays in flight, and what expired is over.
    """
    await start(world)
    assert await submit(world, transfer(ALICE), transfer(ALICE, 1)) == ["ok", "ok"]
    lifecycle = world.service.lifecycle
    first, second = lifecycle.inflight.entries()
    lifecycle.expire(first)
    lifecycle.nonce_heard(ALICE.public, 2)
    assert lifecycle.inflight.entries() == [first, second]
    lifecycle.events_lost()
    lifecycle.nonce_heard(ALICE.public, 2)
    assert lifecycle.inflight.entries() == [second]
    assert (await _audit(world))[-1] == ("settle", 100_000 * GAS_PRICE)


async def test_an_unreadable_time_of_lost_events(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What was in flight then may have run unseen: the start goes on, and what is superseded counts as paid."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    journal = world.service.journal
    await world.stop()
    journal.open()
    journal.change(lambda c: c.execute("INSERT OR REPLACE INTO meta VALUES ('events_lost_ms', 'seven')"))
    await journal.flush()
    await journal.close()
    service = await world.start()
    assert "when events were lost cannot be read" in caplog.text
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]
    assert [entry.losses for entry in service.lifecycle.inflight.entries()] == [-1, 1]
    service.lifecycle.nonce_moved(ALICE.public, 1)
    assert (await _audit(world))[-1] == ("settle", 100_000 * GAS_PRICE)


async def test_a_second_signature_changes_nothing(world: Any) -> None:
    """Whoever signs again what is signed adds nothing to its bytes, which decide its hash."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    lifecycle = world.service.lifecycle
    (entry,) = lifecycle.inflight.entries()
    proto, chain = entry.proto, entry.chain_hash
    lifecycle.cosigned([(entry, entry.tx.relayer_signature)])
    assert (entry.proto, entry.chain_hash) == (proto, chain)
    await world.service.journal.flush()
    assert [record.tx for record in world.service.journal.open_records()] == [proto]


async def test_a_nonce_that_passes_while_the_signer_works(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can come of it any more, so it is not said to be accepted."""
    await start(world)
    signer = world.service.signer
    sign_now = signer.sign

    async def late(items: list[bytes]) -> list[Answer]:
        answers: list[Answer] = await sign_now(items)
        world.service.lifecycle.nonce_moved(ALICE.public, 1)
        return answers

    monkeypatch.setattr(signer, "sign", late)
    assert await submit(world, transfer(ALICE)) == ["nonce too low"]
    assert world.service.broadcaster.queued == 0


@pytest.mark.parametrize(("round_ms", "retry_ms"), [(600, 1_000), (6_000, 6_000)])
async def test_relayer_balance(world: Any, round_ms: int, retry_ms: int) -> None:
    """A key whose balance cannot cover one more fee on top of what is at risk sponsors nothing, until its next block
    may have told more."""
    world.api.set(RELAYERS[1].public, 0, 150_000 * GAS_PRICE)
    await start(world, round_ms=round_ms)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    async with connected(world.ws) as client:
        (refused,) = (await client.ask(action="relay", tx=as_json(transfer(ALICE, 1))))["failed"]
    assert (refused["reason"], refused["retryAfterMs"]) == ("relayer balance too low", retry_ms)


@pytest.mark.parametrize(("floor", "answer"), [(50_000, "ok"), (50_001, "relayer balance too low")])
async def test_relayer_balance_has_a_floor(world: Any, floor: int, answer: str) -> None:
    """Sponsoring stops where one more fee would take the key's balance below its floor, and not before."""
    world.api.set(RELAYERS[1].public, 0, 150_000 * GAS_PRICE)
    await start(world, f"[budget]\nfloor_balance = {floor * GAS_PRICE}")
    assert await submit(world, transfer(ALICE)) == [answer]


async def test_policy_is_read_again(world: Any) -> None:
    """A changed policy file holds within a second; a broken one changes nothing."""
    await start(world, "[caps]\nvalue = 5")
    service, file = world.service, world.folder / "policy.toml"
    file.write_text("[caps]\nvalue = ")
    with pytest.raises(PolicyError, match="policy"):
        await service.policy_keeper.read()
    assert service.lifecycle.sponsor.policy.caps.value == 5
    file.write_text(seal("[caps]\nvalue = 6"))
    await service.policy_keeper.read()
    assert service.lifecycle.sponsor.policy.caps.value == 6


async def test_row_14_no_signature_without_our_address(world: Any) -> None:
    """Without `relayer`, or with somebody else's, nothing is signed or reserved."""
    await start(world)
    assert await submit(world, transfer(ALICE, relayed=False)) == ["relayer field missing"]
    foreign = sign(transfer(ALICE), ALICE, relayer=wallet(1, 9).public)
    assert await submit(world, foreign) == ["invalid relayer address"]
    assert world.service.journal.read("SELECT * FROM submissions") == []


async def test_row_48_disk_full(world: Any) -> None:
    """When the journal cannot be written nothing is signed, nothing stays reserved, and readiness says so."""
    await start(world)
    journal = world.service.journal
    journal.change(lambda connection: connection.execute("PRAGMA max_page_count = 1").close())
    tx = transfer(ALICE, data=b"x" * 20_000, gas_limit=31_000_000)
    assert await submit(world, tx) == ["not ready"]
    assert not world.service.is_ready() and len(world.service.lifecycle.inflight) == 0
    assert world.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 0
    journal.change(lambda connection: connection.execute("PRAGMA max_page_count = 1000000").close())
    assert await submit(world, tx) == ["ok"]


async def test_a_row_read_from_disk_is_never_given_back(world: Any) -> None:
    """After a kill a journalled row may have been signed: a refusal leaves it in place, at risk and conflicting."""
    await start(world, "paused_shards = []")
    tx = transfer(ALICE)
    assert await submit(world, tx, kind="sign") == ["ok"]
    world.service.journal.change(
        # What a kill right after the co-signature leaves on disk.
        lambda connection: connection.execute("DELETE FROM signatures").close()
    )
    await world.stop()
    await start(world, "paused_shards = [1]")
    lifecycle = world.service.lifecycle
    assert lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 100_000 * GAS_PRICE
    await submit(world, tx)
    assert lifecycle.inflight.of_sender(ALICE.public)[0].state == "journalled"
    assert lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 100_000 * GAS_PRICE
    assert await submit(world, transfer(ALICE, data=b"x", gas_limit=200_000)) == ["conflicting transaction"]


@pytest.mark.parametrize("kind", ["relay", "sign"])
async def test_a_signature_that_a_kill_kept_from_the_disk_is_known_by_its_block(world: Any, kind: Any) -> None:
    """What ran is settled and told as such, and asked again has its hash, though its row never had the signature."""
    await start(world, "paused_shards = []")
    tx = transfer(ALICE)
    assert await submit(world, tx, kind=kind) == ["ok"]
    signed = world.service.lifecycle.inflight.of_sender(ALICE.public)[0].tx
    world.service.journal.change(lambda connection: connection.execute("DELETE FROM signatures").close())
    await world.stop()
    await start(world, "paused_shards = [1]")
    assert not world.service.lifecycle.inflight.of_sender(ALICE.public)[0].chain_hash
    name, asked = client_hash(tx).hex(), {"action": kind, "tx": as_json(tx)}
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"tx-status/{name}")
        Chain(world, 1).final([signed], accounts={ALICE.public: (1, 10**18)})
        assert (await client.push())["data"]["status"] == "success"
        if kind == "relay":
            (world.folder / "policy.toml").write_text(seal("paused_shards = []"))
            await world.service.policy_keeper.read()
            assert (await client.ask(**asked))["hashes"] == [chain_hash(signed).hex()]
    assert (await _audit(world))[-1] == ("settle", 50_000 * GAS_PRICE)
    found = await world.service.lifecycle.fates.find(bytes.fromhex(name))
    assert found is not None and (found[0].state, found[0].chain_hash) == ("success", chain_hash(signed))


async def test_what_may_have_been_signed_and_run_unseen_is_not_said_to_have_failed(world: Any) -> None:
    """Of a row read from disk without its signature nobody knows, once its nonce is used and events were lost."""
    await start(world, "paused_shards = []")
    assert await submit(world, transfer(ALICE)) == ["ok"]
    world.service.journal.change(lambda connection: connection.execute("DELETE FROM signatures").close())
    await world.stop()
    await start(world, "paused_shards = [1]")
    refused: list[Any] = []
    lifecycle = world.service.lifecycle
    lifecycle.on_refused = refused.append
    lifecycle.events_lost()
    lifecycle.nonce_moved(ALICE.public, 1)
    assert not refused and not lifecycle.inflight.entries()
    assert (await _audit(world))[-1] == ("settle", 100_000 * GAS_PRICE)


async def test_a_refusal_gives_back_what_nobody_has_a_signature_of(world: Any) -> None:
    """A row that the signing process refuses is given back, also after an answer that nobody read; one read from disk,
    whose signature may have left before a restart, is not."""
    await start(world, sign_wait=0)
    service, key = world.service, RELAYERS[1].public
    sign_really = service.signer.sign

    async def refuse(transactions: list[bytes]) -> list[Answer]:
        return [Answer(refusal="no") for _ in transactions]

    async def lose(transactions: list[bytes]) -> list[Answer]:
        await sign_really(transactions)
        raise SignerError("lost")

    service.signer.sign = refuse
    assert await submit(world, transfer(ALICE)) == ["signer refused"]
    assert service.lifecycle.sponsor.budgets.at_risk(key) == 0 and len(service.lifecycle.inflight) == 0
    service.signer.sign = lose
    assert await submit(world, transfer(ALICE)) == ["pending"]
    service.signer.sign = refuse
    assert await submit(world, transfer(ALICE)) == ["signer refused"]
    assert service.lifecycle.sponsor.budgets.at_risk(key) == 0 and len(service.lifecycle.inflight) == 0
    service.signer.sign = lose
    assert await submit(world, transfer(ALICE)) == ["pending"]
    service.lifecycle.inflight.of_sender(ALICE.public)[0].sign_requests = 1  # as of an entry that was read from disk
    service.signer.sign = refuse
    assert await submit(world, transfer(ALICE)) == ["pending"], "it may still run"
    assert await submit(world, transfer(ALICE), kind="sign") == ["signer unavailable"]
    assert service.lifecycle.sponsor.budgets.at_risk(key) == 100_000 * GAS_PRICE
    assert len(service.lifecycle.inflight) == 1


@pytest.mark.parametrize("last", ["no", "lost", "signed"])
async def test_what_is_asked_for_twice_and_refused_is_given_back(world: Any, last: str) -> None:
    """Of two questions at one moment one "no" says nothing of the other's answer, two say that nothing is signed."""
    await start(world, sign_wait=0)
    service, answers = world.service, [asyncio.Event(), asyncio.Event()]
    told: list[Any] = []
    service.lifecycle.on_refused = told.append
    sign_really, asked = service.signer.sign, 0

    async def refuse(transactions: list[bytes]) -> list[Answer]:
        nonlocal asked
        asked += 1
        is_last = asked == 2
        await answers[is_last].wait()
        if is_last and last == "signed":
            return await sign_really(transactions)
        if is_last and last == "lost":
            raise SignerError("lost")
        return [Answer(refusal="no") for _ in transactions]

    service.signer.sign = refuse
    first = asyncio.ensure_future(submit(world, transfer(ALICE)))
    async with asyncio.timeout(10):
        while not asked:
            await asyncio.sleep(0.001)
        (entry,) = service.lifecycle.inflight.entries()
        second = asyncio.ensure_future(service.cosigner.sign([entry]))
        while asked < 2:
            await asyncio.sleep(0.001)
        answers[0].set()
        assert await first == ["pending"] and not told, "the other answer may be a signature"
        answers[1].set()
        await asyncio.wait([second])
    if last == "signed":
        assert entry.state == "signed" and service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == entry.fee
        return
    if last == "lost":
        assert isinstance(second.exception(), SignerError) and entry.state == "journalled"
        await service.cosigner.sign_missed()
    await service.cosigner.close()
    assert told == [entry] and len(service.lifecycle.inflight) == 0
    assert service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 0


async def test_what_the_policy_refused_at_a_start_is_signed_once_it_allows_it(world: Any) -> None:
    """What was accepted and not signed before a kill, and refused then, is signed and sent when the policy changes."""
    await start(world, "paused_shards = []")
    assert await submit(world, transfer(ALICE)) == ["ok"]
    world.service.journal.change(lambda connection: connection.execute("DELETE FROM signatures").close())
    await world.stop()
    world.api.submitted.clear()
    await start(world, "paused_shards = [1]", regossip_seconds=0.1)
    entry = world.service.lifecycle.inflight.of_sender(ALICE.public)[0]
    assert entry.state == "journalled" and not world.api.submitted
    entry.created_ms -= 700_000  # longer ago than it would be sent
    (world.folder / "policy.toml").write_text(seal("paused_shards = []"))
    await world.api.wait_submitted(2)
    assert entry.state == "signed" and entry.sending, "its time on the network begins now"
    await world.service.journal.written()
    (record,) = world.service.journal.open_records()
    assert record.created_ms == entry.created_ms > time.time() * 1000 - 60_000


async def test_what_was_refused_after_a_start_is_asked_for_again(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the signing process had against it, it is asked again from time to time, and said once what it says."""
    monkeypatch.setattr(upkeep, "TIDY_SECONDS", 0.01)
    await start(world, sign_wait=0)
    service, asked, enough = world.service, 0, asyncio.Event()
    really = service.signer.sign

    async def lose(transactions: list[bytes]) -> list[Answer]:
        raise SignerError("lost")

    async def refuse(transactions: list[bytes]) -> list[Answer]:
        nonlocal asked
        asked += 1
        if asked == 3:
            enough.set()
        return [Answer(refusal="no") for _ in transactions]

    service.signer.sign = lose
    assert await submit(world, transfer(ALICE)) == ["pending"]
    entry = service.lifecycle.inflight.of_sender(ALICE.public)[0]
    entry.sign_requests = 1  # as of an entry that was read from disk
    service.signer.sign = refuse
    async with asyncio.timeout(10):
        await enough.wait()
    service.signer.sign = really
    await world.api.wait_submitted(1)
    assert entry.state == "signed"
    said = [record.__dict__ for record in caplog.records if record.message == "what was journalled is not signed"]
    assert [(line["reason"], line["count"]) for line in said] == [("no", 1)]


@pytest.mark.parametrize("kind", ["relay", "sign"])
async def test_row_10_the_same_bytes_twice_in_a_batch(world: Any, kind: Any) -> None:
    """They are signed once and have one hash, and what is on disk can be read after a restart."""
    await start(world)
    tx = transfer(ALICE)
    assert await submit(world, tx, tx, kind=kind) == ["ok", "ok"]
    entry = world.service.lifecycle.inflight.of_sender(ALICE.public)[0]
    assert from_proto(entry.proto) == entry.tx and entry.chain_hash == chain_hash(entry.tx)
    await world.stop()
    await start(world)
    restored = world.service.lifecycle.inflight.of_sender(ALICE.public)[0]
    assert (restored.tx, restored.chain_hash) == (entry.tx, entry.chain_hash)


async def test_the_same_bytes_twice_are_given_back_once(world: Any) -> None:
    """Twice in a batch is one request to the signing process: when it refuses, nothing stays at risk."""
    await start(world)

    async def refuse(transactions: list[bytes]) -> list[Answer]:
        return [Answer(refusal="no") for _ in transactions]

    world.service.signer.sign = refuse
    assert await submit(world, transfer(ALICE), transfer(ALICE)) == ["signer refused"] * 2
    assert world.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 0
    assert len(world.service.lifecycle.inflight) == 0


async def test_what_was_only_signed_is_accepted_once_the_disk_knows(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by who asks while that of another is on its way to the disk: both are answered by what comes of it."""
    await start(world)
    journal, tx = world.service.journal, transfer(ALICE)
    assert await submit(world, tx, kind="sign") == ["ok"]
    flush, asked, come = journal.flush, asyncio.Semaphore(0), asyncio.Event()

    async def fail() -> None:
        asked.release()
        await come.wait()
        raise JournalError("the disk is full")

    monkeypatch.setattr(journal, "flush", fail)
    async with asyncio.timeout(10):
        first = asyncio.ensure_future(submit(world, tx))
        await asked.acquire()
        second, waits = asyncio.ensure_future(submit(world, tx)), asyncio.ensure_future(asked.acquire())
        await asyncio.wait({second, waits}, return_when=asyncio.FIRST_COMPLETED)
        assert not second.done()
        come.set()
        assert await asyncio.gather(first, second) == [["not ready"]] * 2
        assert await submit(world, tx) == ["not ready"], "the disk is asked anew"
        monkeypatch.setattr(journal, "flush", flush)
        assert await submit(world, tx) == ["ok"]


async def test_a_nonce_that_passes_before_the_row_is_written(world: Any) -> None:
    """What is over before it gets to the disk is refused and leaves no row, which would be at risk after a restart."""
    await start(world)
    service, tx = world.service, transfer(ALICE)
    batch = await service.submitter.take(Origin("relay", "ip"), [raw(tx), raw(tx)])
    service.lifecycle.nonce_moved(ALICE.public, 1)
    results = await service.submitter.finish(batch)
    assert [result.reason for result in results] == ["nonce too low"] * 2
    assert service.journal.open_records() == []


async def _audit(world: Any) -> list[tuple[str, int]]:
    await world.service.journal.flush()
    rows = world.service.journal.read("SELECT event, amount FROM audit ORDER BY id")
    return [(event, int(amount)) for event, amount in rows]


def _client(tx: Any) -> bytes:
    return client_hash(tx)


def _finalise(world: Any, maker: BlockMaker, sequence: int) -> None:
    message = pb.FinalizedBlock(shardID=maker.shard, headerHash=maker.previous)
    world.service.events.on_event("FinalizedBlock", message.SerializeToString(), sequence)


async def test_what_is_kept_of_a_transaction_is_not_walked_by_the_collector(world: Any) -> None:
    """Of a hundred thousand transactions in flight none is looked at by the garbage collector: that would take long."""
    await start(world)
    data = call.encode("ESDTTransfer", b"ABC-123456", b"\5", b"function", b"argument")
    calls = [transfer(ALICE, nonce, data=data, gas_limit=1_000_000) for nonce in range(90)]
    counts = []
    for part in (calls[:10], calls[10:50], calls[50:]):  # the first ones make what all of them need
        assert await submit(world, *part, kind="sign") == ["ok"] * len(part)
        await world.service.journal.flush()
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert min(counts[1] - counts[0], counts[2] - counts[1]) < 40, "other work makes something now and then, not twice"
