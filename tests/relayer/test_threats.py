"""An attacker's suite: one test or more for rows of the threat model that no other file holds."""

from __future__ import annotations

import asyncio
import re
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import generate_latest
from relayer_support import (
    GAS_PRICE,
    NETWORK,
    RELAYERS,
    Chain,
    as_json,
    connected,
    entry_of,
    raw,
    sign,
    start,
    submit,
    transfer,
    wallet,
)

from millrace.chain import address, call
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import GUARDED, Transaction, chain_hash, signing_message
from millrace.relayer.ledger.checks import check_guardian
from millrace.relayer.metrics import make_registry
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.rules.policy import Budget, Policy, loads
from millrace.relayer.rules.slices import PART
from millrace.relayer.rules.stages import Origin
from millrace.relayer.submission import finisher, submitter
from millrace.relayer.submission.batch import Accepted
from millrace.relayer.submission.shares import Company

ALICE = wallet(1)

TOKEN = b"A-123456".hex().encode()


@pytest.mark.parametrize(
    "data",
    [
        b"burn@0",
        b"burn@zz",
        b"burn@",
        b"burn@0@01",
        b"burn",
        call.encode("burn", b"x"),
        call.esdt_transfer("A-123456", 1, "burn"),
    ],
)
async def test_row_15_denied_functions_by_name(world: Any, data: bytes) -> None:
    """However its arguments look, a function is matched by its name: also one that cannot be read as a call."""
    await start(world, '[lists]\ndeny_functions = ["burn"]')
    tx = transfer(ALICE, data=data, gas_limit=900_000)
    assert await submit(world, tx) == ["function not allowed"]
    assert await submit(world, transfer(ALICE, data=b"burner@0", gas_limit=900_000)) == ["ok"]


@pytest.mark.parametrize("data", [b"burn@0", b"ESDTTransfer@0", b"x@zz"])
async def test_row_15_what_cannot_be_read_is_no_plain_transfer(world: Any, data: bytes) -> None:
    """Where only plain transfers are sponsored, unreadable data does not pass for one."""
    await start(world, '[lists]\nallow_functions = [""]')
    (reason,) = await submit(world, transfer(ALICE, data=data, gas_limit=900_000))
    assert reason in ("function not allowed", "invalid data")
    assert await submit(world, transfer(ALICE)) == ["ok"]


@pytest.mark.parametrize(
    "data",
    [
        b"ESDTTransfer@" + TOKEN + b"@01@6275726e@0",
        b"ESDTNFTTransfer@" + TOKEN + b"@01@01@" + b"00" * 32 + b"@6275726e@0",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@01@" + TOKEN + b"@@01@6275726e@z",
    ],
)
async def test_row_15_unreadable_token_transfers_are_refused(world: Any, data: bytes) -> None:
    """What a token transfer calls cannot be told if its arguments cannot be read: it is not sponsored at all."""
    await start(world)
    tx = transfer(ALICE, receiver=ALICE.public, data=data, gas_limit=900_000)
    assert await submit(world, tx) == ["invalid data"]


async def test_row_5_value_beyond_the_balance(world: Any) -> None:
    """A value the sender does not have, which would burn the relayer's fee, is refused: alone or summed in a batch."""
    await start(world)
    world.api.set(ALICE.public, 0, 10)
    assert await submit(world, transfer(ALICE, value=11)) == ["insufficient balance"]
    assert await submit(world, transfer(ALICE, value=6), transfer(ALICE, 1, value=6)) == ["ok", "insufficient balance"]


async def fail(world: Any, chain: Chain, *txs: Any, ip: str = "ip") -> list[str]:
    """Submit transactions, and have a final block say that each accepted one failed in its contract."""
    answers = await submit(world, *txs, ip=ip)
    whole = [entry_of(world, tx).tx for tx, answer in zip(txs, answers, strict=True) if answer == "ok"]
    chain.final(whole, failing={chain_hash(tx): "no" for tx in whole})
    return answers


async def test_row_6_revert_griefing_by_many_senders(world: Any) -> None:
    """However many senders share the work, what their failing transactions cost stays within the loss budget."""
    fee = 50_000 * GAS_PRICE  # what the block charges; the worst case is twice as much
    await start(world, f"[budget]\nloss_per_hour = {40 * fee}\n[quotas]\nsender_in_flight = 100\nfailures = 100")
    chain, refused = Chain(world, 1), 0
    for nonce in range(10):
        answers = await fail(world, chain, *(transfer(wallet(1, number), nonce) for number in range(10)))
        refused += len([answer for answer in answers if answer != "ok"])
        assert set(answers) <= {"ok", "budget exhausted", "nonce too high"}
    ledger = world.service.lifecycle.sponsor.budgets
    lost = ledger.standing(RELAYERS[1].public, time.monotonic()).lost_hour
    assert 38 * fee <= lost <= 40 * fee and refused >= 50


@pytest.mark.parametrize("first", ["source", "destination"])
async def test_row_6_failures_elsewhere_are_losses_in_any_order(world: Any, first: str) -> None:
    """What fails in another shard is lost once, whichever of the two shards' blocks is heard of first."""
    await start(world)
    contract = bytes(8) + b"\5\0" + b"c" * 20 + b"\0\2"
    assert await submit(world, transfer(ALICE, receiver=contract, data=b"buy@01", gas_limit=300_000)) == ["ok"]
    (entry,) = world.service.lifecycle.inflight.entries()
    whole, fee = entry.tx, entry.fee
    chains = {"source": Chain(world, 1), "destination": Chain(world, 2)}
    failing = {"source": {}, "destination": {chain_hash(whole): "no"}}
    for name in sorted(chains, key=lambda name: name != first):
        chains[name].final([whole], failing=failing[name])
    ledger = world.service.lifecycle.sponsor.budgets
    assert ledger.standing(RELAYERS[1].public, time.monotonic()).lost_hour == fee
    assert ledger.at_risk(RELAYERS[1].public) == 0
    assert ledger.left(RELAYERS[1].public, time.monotonic(), Budget(loss_per_hour=3 * fee)) == 2 * fee


async def test_row_6_a_function_that_keeps_failing(world: Any) -> None:
    """Calls of a function are not sponsored while nearly all of them fail, whoever calls; others are.

    Names that never succeeded may be invented: they count as one.
    """
    await start(world, "[quotas]\ncall_sample = 4\ncall_failure_percent = 75\nfailures = 100")
    contract = bytes(8) + b"\5\0" + b"c" * 20 + b"\0\1"
    chain = Chain(world, 1)

    def call_by(number: int, data: bytes) -> Any:
        return transfer(wallet(1, number), receiver=contract, data=data, gas_limit=300_000)

    proven = call_by(9, b"claim")
    assert await submit(world, proven) == ["ok"]
    hash_of = chain_hash(entry_of(world, proven).tx)
    world.service.lifecycle.included(hash_of, None)
    world.service.lifecycle.sponsor.ended(hash_of, failed=False)
    assert await fail(world, chain, *(call_by(number, b"swap@0%d" % number) for number in range(4))) == ["ok"] * 4
    calls = [call_by(5, b"swap"), call_by(6, b"swap@0"), call_by(8, b"other"), call_by(7, b"claim")]
    assert await submit(world, *calls) == [
        "call throttled", "call throttled", "call throttled", "ok",
    ]  # fmt: skip


async def throttled(world: Any, **settings: Any) -> Chain:
    """A relayer that simulates, and Alice, whose two transactions have failed."""
    await start(world, "[quotas]\nfailures = 2", simulate=True, **settings)
    chain = Chain(world, 1)
    for nonce in range(2):
        assert await fail(world, chain, transfer(ALICE, nonce)) == ["ok"]
    world.api.set(ALICE.public, 2, 10**18)
    assert world.api.simulated == [], "only who keeps failing is simulated"
    return chain


async def test_row_6_who_keeps_failing_is_simulated(world: Any) -> None:
    """What would fail waits; what would succeed is let in, one of a sender at a time, and only what is sent at once."""
    await throttled(world)
    world.api.outcome = {"status": "fail", "failReason": "execution failed"}
    assert await submit(world, transfer(ALICE, 2)) == ["sender throttled"]
    assert [item["nonce"] for item in world.api.simulated] == [2]
    assert await submit(world, transfer(ALICE, 2)) == ["sender throttled"]
    assert len(world.api.simulated) == 1, "what was said a moment ago is not asked again"
    world.api.outcome = {"status": "success"}
    other = transfer(ALICE, 2, data=b"x")
    assert await submit(world, other, kind="sign") == ["sender throttled"]
    assert await submit(world, other, transfer(ALICE, 3)) == ["ok", "sender throttled"]
    assert len(world.api.simulated) == 2
    assert dict(world.service.simulator.counts) == {"fail": 1, "success": 1}


async def test_row_6_a_simulation_speaks_for_what_is_sent(world: Any) -> None:
    """What was found to run, and was not sent, is not signed for its sender: nobody knows when it would run."""
    await throttled(world)
    world.api.outcome = {"status": "success"}
    looks: list[int] = []

    def given_up() -> Reason | None:
        looks.append(1)
        return None if len(looks) < 2 else reasons.BUSY

    doors = world.service.submitter
    batch = await doors.take(Origin("relay", "ip", ""), [raw(transfer(ALICE, 2))], None, given_up)
    assert await doors.finish(batch) and len(world.service.lifecycle.inflight) == 0
    assert dict(world.service.simulator.counts) == {"success": 1}
    assert await submit(world, transfer(ALICE, 2), kind="sign") == ["sender throttled"]


@pytest.mark.parametrize("first", [1, 2])
async def test_row_6_a_loss_is_its_clients_whichever_shard_tells_it_first(world: Any, first: int) -> None:
    """What fails in its receiver's shard counts in the client's share also before its sender's shard tells of it."""
    await start(world)
    assert await submit(world, transfer(ALICE, receiver=wallet(2).public)) == ["ok"]
    whole = world.service.lifecycle.inflight.entries()[0].tx
    for shard in (first, 3 - first):
        Chain(world, shard).final([whole], failing={chain_hash(whole): "no"} if shard == 2 else {})
    now, budgets = time.monotonic(), world.service.lifecycle.sponsor.budgets
    lost = budgets.standing(RELAYERS[1].public, now).lost_hour
    assert lost > 0 and budgets._shares.find((RELAYERS[1].public, "ip")).losses.sum(now) == lost


async def test_row_6_nobody_says_what_would_come_of_it(world: Any) -> None:
    """Without an answer, and for a moment after that, who keeps failing waits as without simulations."""
    await throttled(world)
    world.api.outcome = None
    assert await submit(world, transfer(ALICE, 2)) == ["sender throttled"]
    world.api.outcome = {"status": "success"}
    assert await submit(world, transfer(ALICE, 2)) == ["sender throttled"]
    assert dict(world.service.simulator.counts) == {"unanswered": 1, "busy": 1}


async def test_row_6_a_contract_that_behaves_while_it_is_simulated(world: Any) -> None:
    """Whose transaction fails although its simulation did not is let in by no further one until the wait is over."""
    chain = await throttled(world)
    assert await fail(world, chain, transfer(ALICE, 2)) == ["ok"]
    world.api.set(ALICE.public, 3, 10**18)
    assert await submit(world, transfer(ALICE, 3)) == ["sender throttled"]


async def test_row_6_who_fools_a_simulation_is_not_believed_others_are(world: Any) -> None:
    """After a simulation that was wrong those of its sender and its client are not believed; everybody else's are."""
    rules = "[quotas]\ncall_sample = 4\ncall_failure_percent = 75\nfailures = 100"
    await start(world, rules, simulate=True)
    contract = bytes(8) + b"\5\0" + b"c" * 20 + b"\0\1"
    chain = Chain(world, 1)

    def call_by(number: int, nonce: int = 0) -> Any:
        return transfer(wallet(1, number), nonce, receiver=contract, data=b"swap", gas_limit=300_000)

    assert await fail(world, chain, *(call_by(number) for number in range(4))) == ["ok"] * 4
    assert await fail(world, chain, call_by(5), ip="stranger") == ["ok"], "a simulation let it in"
    world.api.set(wallet(1, 5).public, 1, 10**18)
    assert await submit(world, call_by(5, 1), call_by(6), ip="stranger") == ["call throttled"] * 2
    assert await submit(world, call_by(5, 1), call_by(7), ip="another") == ["call throttled", "ok"]


async def test_row_6_reputations_and_losses_survive_a_restart(world: Any) -> None:
    """Who was throttled before a restart is throttled after it, what was lost is not forgotten."""
    policy = "[quotas]\nfailures = 2"
    await start(world, policy)
    chain = Chain(world, 1)
    for nonce in range(2):
        assert await fail(world, chain, transfer(ALICE, nonce)) == ["ok"]
    world.api.set(ALICE.public, 2, 10**18)
    assert await submit(world, transfer(ALICE, 2)) == ["sender throttled"]
    await world.stop()
    await start(world, policy)
    assert await submit(world, transfer(ALICE, 2), transfer(wallet(1, 1))) == ["sender throttled", "ok"]
    lost = world.service.lifecycle.sponsor.budgets.standing(RELAYERS[1].public, time.monotonic()).lost_hour
    assert lost == 2 * 50_000 * GAS_PRICE


async def test_row_6_what_is_in_flight_over_a_restart_is_learned_from(world: Any) -> None:
    """A transaction signed before a restart that fails after it counts against its sender all the same."""
    policy = "[quotas]\nfailures = 1"
    await start(world, policy)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    whole = entry_of(world, transfer(ALICE)).tx
    await world.service.journal.flush()
    await world.stop()
    await start(world, policy)
    Chain(world, 1).final([whole], failing={chain_hash(whole): "no"})
    world.api.set(ALICE.public, 1, 10**18)
    assert await submit(world, transfer(ALICE, 1)) == ["sender throttled"]


async def test_row_6_what_has_no_end_yet_may_still_be_lost_after_a_restart(world: Any) -> None:
    """A fee whose block is final, but of which nobody has said whether it failed, counts against the losses."""
    fee = 100_000 * GAS_PRICE
    policy = f"[budget]\nloss_per_hour = {fee + fee // 2}"
    await start(world, policy)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    entry = entry_of(world, transfer(ALICE))
    assert world.service.lifecycle.included(entry.chain_hash, fee) is not None
    await world.service.journal.flush()
    await world.stop()
    await start(world, policy)
    other = wallet(1, 1)
    assert await submit(world, transfer(other)) == ["budget exhausted"]
    world.service.lifecycle.sponsor.ended(entry.chain_hash, failed=False)
    assert await submit(world, transfer(other)) == ["ok"]


async def test_row_11_what_was_written_off_is_lost_when_it_fails(world: Any) -> None:
    """It leaves what strangers may lose at once, and is a loss if it runs and fails after all."""
    fee = 100_000 * GAS_PRICE
    await start(world, f"[budget]\nloss_per_hour = {fee + fee // 2}")
    assert await submit(world, transfer(ALICE)) == ["ok"]
    entry = entry_of(world, transfer(ALICE))
    assert world.service.lifecycle.write_off(entry.client_hash)
    other = wallet(1, 1)
    assert await submit(world, transfer(other)) == ["ok"]
    assert world.service.lifecycle.write_off(entry_of(world, transfer(other)).client_hash)
    Chain(world, 1).final([entry.tx], failing={chain_hash(entry.tx): "no"})
    assert await submit(world, transfer(wallet(1, 2))) == ["budget exhausted"]


async def test_row_11_only_signed_nonces_do_not_reach_far_ahead(world: Any) -> None:
    """/v1/sign goes a few nonces beyond the account's; what is broadcast here may go further."""
    await start(world, "[quotas]\nsign_only_ahead = 2")
    world.api.set(ALICE.public, 7, 10**18)
    txs = [transfer(ALICE, nonce) for nonce in range(7, 11)]
    assert await submit(world, *txs, kind="sign") == ["ok", "ok", "ok", "nonce too high"]
    assert await submit(world, txs[3]) == ["ok"]


async def test_row_11_hoards_are_bounded_by_sender_and_address(world: Any) -> None:
    """What was only signed stays at risk whatever the clock says, and more than the bound is not signed."""
    fee = 100_000 * GAS_PRICE
    await start(world, f"[quotas]\nsender_at_risk_sign_only = {2 * fee}\nip_at_risk_sign_only = {3 * fee}")
    first = [transfer(ALICE, nonce) for nonce in range(3)]
    second = [transfer(wallet(1, 1), nonce) for nonce in range(2)]
    assert await submit(world, *first, kind="sign") == ["ok", "ok", "quota exhausted"]
    assert await submit(world, *second, kind="sign") == ["ok", "quota exhausted"]
    now = time.monotonic()
    world.service.lifecycle.sponsor._clock = lambda: now + 40 * 86_400.0
    assert await submit(world, first[2], kind="sign") == ["quota exhausted"], "a clock that jumps frees nothing"
    assert await submit(world, transfer(wallet(1, 2)), kind="sign", ip="elsewhere") == ["ok"]


async def test_row_11_hoards_survive_a_restart(world: Any) -> None:
    """After a restart the bound on what one sender holds signed still counts what it held before."""
    policy = f"[quotas]\nsender_at_risk_sign_only = {100_000 * GAS_PRICE}"
    await start(world, policy)
    assert await submit(world, transfer(ALICE), kind="sign") == ["ok"]
    await world.stop()
    await start(world, policy)
    assert await submit(world, transfer(ALICE, 1), kind="sign") == ["quota exhausted"]


GUARDIAN = wallet(0, 30)


def guarded(nonce: int = 0) -> Any:
    tx = sign(transfer(ALICE, nonce), ALICE, guardian=GUARDIAN.public, options=GUARDED, gas_limit=200_000)
    return msgspec.structs.replace(tx, guardian_signature=GUARDIAN.sign(signing_message(tx)))


async def test_row_11_guardians_are_those_of_the_account(world: Any) -> None:
    """What nodes would never execute for want of the right guardian is not signed: it would be at risk for ever."""
    await start(world)
    world.api.guardians[address.encode(ALICE.public)] = GUARDIAN.public
    with pytest.raises(Refused) as refusal:
        check_guardian(transfer(ALICE), await world.service.accounts.know(ALICE.public), Origin("sign", ""))
    assert address.encode(GUARDIAN.public) in (refusal.value.reason.detail or ""), "who it is"
    assert await submit(world, transfer(ALICE), kind="sign") == ["invalid guardian"]
    assert await submit(world, guarded(), kind="sign") == ["ok"]
    world.api.guardians[address.encode(wallet(1, 1).public)] = wallet(0, 31).public
    other = sign(transfer(wallet(1, 1)), wallet(1, 1), guardian=GUARDIAN.public, options=GUARDED, gas_limit=200_000)
    other = msgspec.structs.replace(other, guardian_signature=GUARDIAN.sign(signing_message(other)))
    assert await submit(world, other) == ["invalid guardian"]
    world.api.guardians[address.encode(wallet(1, 2).public)] = b""
    unguarded = sign(transfer(wallet(1, 2)), wallet(1, 2), guardian=GUARDIAN.public, options=GUARDED, gas_limit=200_000)
    unguarded = msgspec.structs.replace(unguarded, guardian_signature=GUARDIAN.sign(signing_message(unguarded)))
    assert await submit(world, unguarded) == ["invalid guardian"]


async def test_row_11_who_lost_his_guardian_names_another_one(world: Any) -> None:
    """Nodes execute that without the guardian, so it is broadcast; it is not sponsored, nor does anything else pass."""
    await start(world)
    world.api.guardians[address.encode(ALICE.public)] = GUARDIAN.public
    data = call.encode("SetGuardian", wallet(0, 31).public, b"service")
    asked = transfer(ALICE, relayed=False, receiver=ALICE.public, data=data, gas_limit=300_000)
    other = sign(asked, ALICE, data=b"GuardAccount")
    assert await submit(world, other, kind="broadcast") == ["invalid guardian"]
    assert await submit(world, sign(asked, ALICE, relayer=RELAYERS[1].public)) == ["invalid guardian"]
    assert await submit(world, asked, kind="broadcast") == ["ok"]


async def test_row_11_a_pending_guardian_is_not_replaced(world: Any) -> None:
    """On a guarded account nodes take no other guardian while one is pending, so it is not broadcast either."""
    await start(world)
    name = address.encode(ALICE.public)
    world.api.guardians[name], world.api.pending[name] = GUARDIAN.public, wallet(0, 31).public
    data = call.encode("SetGuardian", wallet(0, 32).public, b"service")
    asked = transfer(ALICE, relayed=False, receiver=ALICE.public, data=data, gas_limit=300_000)
    assert await submit(world, asked, kind="broadcast") == ["invalid guardian"]
    del world.api.pending[name]
    now = time.monotonic()
    world.service.accounts._clock = lambda: now + 1.0
    assert await submit(world, asked, kind="broadcast") == ["ok"]


async def test_row_11_a_guardian_set_meanwhile_is_heard_of(world: Any) -> None:
    """Before a guardian is called wrong the chain is asked again; where it says nothing, nothing is refused for it."""
    await start(world)
    assert await submit(world, guarded()) == ["ok"], "this chain API does not speak of guardians"
    bob = wallet(1, 1)
    world.api.guardians[address.encode(bob.public)] = GUARDIAN.public
    assert await submit(world, transfer(bob)) == ["invalid guardian"]
    world.api.guardians[address.encode(bob.public)] = b""
    now = time.monotonic()
    world.service.accounts._clock = lambda: now + 1.0
    assert await submit(world, transfer(bob)) == ["ok"]


async def test_row_12_nonce_gap_flood(world: Any) -> None:
    """Future nonces take no reservation: without `max_nonce_gap` none, with it a bounded number of one sender's."""
    await start(world)
    flood = [transfer(ALICE, nonce) for nonce in range(1, 100)]
    assert await submit(world, *flood) == ["nonce too high"] * 99
    assert world.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 0
    await world.stop()
    await start(world, "[quotas]\nsender_in_flight = 5", max_nonce_gap=100)
    answers = await submit(world, *flood)
    assert answers[:5] == ["ok"] * 5 and set(answers[5:]) == {"too many transactions in flight"}


async def test_row_17_calls_of_listed_contracts_only(world: Any) -> None:
    """With a list of contracts only their calls are sponsored, also inside a token transfer; transfers still are."""
    ours, theirs = (bytes(8) + b"\5\0" + letter * 20 + b"\0\1" for letter in (b"a", b"b"))
    await start(world, f'[lists]\nallow_contracts = ["{address.encode(ours)}"]')
    inside = call.multi_transfer(theirs, [call.TokenPayment("A-123456", 0, 1)], "earn")
    assert await submit(
        world,
        transfer(ALICE, receiver=ours, data=b"swap", gas_limit=300_000),
        transfer(ALICE, 1, receiver=theirs, data=b"earn", gas_limit=300_000),
        transfer(ALICE, 1, receiver=ALICE.public, data=inside, gas_limit=900_000),
        transfer(ALICE, 1, receiver=theirs),
        transfer(ALICE, 1),
    ) == ["ok", "receiver not allowed", "receiver not allowed", "receiver not allowed", "ok"]


async def test_row_17_fees_by_receiver_are_seen(world: Any) -> None:
    """Metrics show to whom the fees go, the largest first and no more than twenty."""
    await start(world)
    sponsor, chain = world.service.lifecycle.sponsor, Chain(world, 1)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    chain.final([entry_of(world, transfer(ALICE)).tx])
    async with aiohttp.ClientSession(world.operators) as http, http.get("/metrics") as response:
        text = await response.text()
    receiver = address.encode(transfer(ALICE).receiver)
    assert f'relayer_receiver_fees_egld_total{{receiver="{receiver}"}} {50_000 * GAS_PRICE / 10**18}' in text
    for number in range(50):
        sponsor.fees_by_receiver[number.to_bytes(32, "big")] = number
    text = generate_latest(make_registry(world.service.measured())).decode()
    assert text.count("relayer_receiver_fees_egld_total{") == 20 and receiver in text


async def test_budgets_are_restored_from_the_audit_log(world: Any) -> None:
    """However short the journal keeps its rows, after a restart the day's spending is what it was."""
    policy = f"[budget]\nper_day = {60_000 * GAS_PRICE}\n[caps]\nfee = {100_000 * GAS_PRICE}"
    await start(world, f"[budget]\nper_day = {150_000 * GAS_PRICE}")
    assert await submit(world, transfer(ALICE)) == ["ok"]
    Chain(world, 1).final([entry_of(world, transfer(ALICE)).tx])
    service = world.service
    await service.journal.flush()
    service.journal.change(lambda connection: connection.execute("DELETE FROM submissions").close())
    await service.journal.flush()
    spent = service.journal.spent_since(0)
    assert [(item.fee, item.cost) for item in spent] == [(100_000 * GAS_PRICE, 50_000 * GAS_PRICE)]
    await world.stop()
    await start(world, policy)
    key = RELAYERS[1].public
    left = world.service.lifecycle.sponsor.budgets.left(
        key, time.monotonic(), world.service.lifecycle.sponsor.policy.budget
    )
    assert left == 10_000 * GAS_PRICE


async def test_an_hour_of_quotas_outlives_retention(world: Any) -> None:
    """With rows kept for no time, what an address had sponsored in the last hour still counts after a restart."""
    policy = f"[quotas]\nip_per_hour = {90_000 * GAS_PRICE + 50_000 * GAS_PRICE}"
    await start(world, policy)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    Chain(world, 1).final([entry_of(world, transfer(ALICE)).tx])
    world.service.journal.prune(2**62)
    await world.service.journal.flush()
    await world.stop()
    await start(world, policy)
    assert await submit(world, transfer(wallet(1, 1))) == ["quota exhausted"]
    assert await submit(world, transfer(wallet(1, 1)), ip="elsewhere") == ["ok"]


async def test_not_ready_without_fresh_blocks(world: Any) -> None:
    """A shard that has sent no block for too long is not sponsored, others are; its next block ends that by itself."""
    await start(world, stale_seconds=30.0)
    events, now = world.service.events, time.monotonic()
    events.block_at = {0: now, 1: now - 31.0, 2: now - 29.0}
    assert await submit(world, transfer(ALICE), transfer(wallet(0)), transfer(wallet(2))) == ["not ready", "ok", "ok"]
    assert await submit(world, transfer(ALICE, relayed=False, gas_limit=50_000), kind="broadcast") == ["ok"]
    assert len(world.service.lifecycle.inflight) == 3
    Chain(world, 1).final()
    assert await submit(world, transfer(wallet(1, 1))) == ["ok"]


async def test_nonces_beyond_the_journal(world: Any) -> None:
    """A nonce no row can hold is refused in words, and the thread that writes rows lives on."""
    await start(world)
    assert await submit(world, transfer(ALICE, 2**63)) == ["nonce too high"]
    world.api.set(ALICE.public, 2**63, 10**18)
    world.service.accounts.book.forget_all()
    assert await submit(world, transfer(ALICE, 2**63)) == ["invalid nonce"]
    assert await submit(world, transfer(wallet(2))) == ["ok"]


async def test_row_46_a_refused_transaction_is_not_pressed_on_the_api(world: Any) -> None:
    """What the chain API will never take waits for its next turn by gossip; what it may take later comes back soon."""
    await start(world, regossip_seconds=1000.0)
    broadcaster = world.service.broadcaster
    assert await submit(world, transfer(ALICE), transfer(wallet(2))) == ["ok", "ok"]
    answers = {ALICE.public: "never", wallet(2).public: "later"}

    async def answer(tx: Any) -> Any:
        return answers[tx.sender]

    broadcaster._submit = answer
    entries = [entry_of(world, transfer(ALICE)), entry_of(world, transfer(wallet(2)))]
    broadcaster._due.clear()
    assert [await broadcaster._hand_to_api(entry) for entry in entries] == [True, False]
    pauses = {entry.tx.sender: due - time.monotonic() for due, _, part in broadcaster._due for entry in part}
    assert pauses[ALICE.public] > 900 and pauses[wallet(2).public] < 5


@pytest.mark.parametrize("gas_price", [2 * GAS_PRICE + 1, 2**63, 2**64 - 1])
async def test_row_3_gas_price_inflation(world: Any, gas_price: int) -> None:
    """Beyond twice the minimum, with nothing known of what others pay, the price is too high, however high it is."""
    await start(world)
    assert await submit(world, transfer(ALICE, gas_price=gas_price), transfer(ALICE, gas_price=2 * GAS_PRICE)) == [
        "gas price too high", "ok",
    ]  # fmt: skip


async def test_row_4_gas_limit_inflation(world: Any) -> None:
    """Gas nobody needs is capped by the limit, and by the worst-case fee it makes; at the bound it passes."""
    fee = 100_000 * GAS_PRICE + 400_000 * (GAS_PRICE // 100)
    await start(world, f"[caps]\ngas_limit = 600000\nfee = {fee}")
    limits = (600_001, 500_001, 500_000)
    assert await submit(world, *(transfer(ALICE, gas_limit=limit) for limit in limits)) == [
        "gas limit too high", "fee too high", "ok",
    ]  # fmt: skip


async def test_row_8_a_forged_sender_pays_nothing(world: Any) -> None:
    """Naming somebody else as sender takes nothing of that sender's quota, or of anything else."""
    await start(world, f"[quotas]\nsender_per_hour = {100_000 * GAS_PRICE}")
    forged = msgspec.structs.replace(transfer(ALICE), signature=wallet(1, 1).sign(signing_message(transfer(ALICE))))
    assert await submit(world, *[forged] * 5) == ["invalid signature"] * 5
    assert await submit(world, transfer(ALICE)) == ["ok"]


ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the group Ed25519 signs in."""


async def test_row_19_malleable_signatures(world: Any) -> None:
    """The same signature with the group's order added to its second half is another text, and is refused."""
    await start(world)
    tx = transfer(ALICE)
    half = int.from_bytes(tx.signature[32:], "little") + ORDER
    other = msgspec.structs.replace(tx, signature=tx.signature[:32] + half.to_bytes(32, "little"))
    assert await submit(world, other) == ["invalid signature"]
    assert await submit(world, tx) == ["ok"]


@pytest.mark.parametrize("weak", [b"\1" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"])
async def test_row_20_small_order_keys(world: Any, weak: bytes) -> None:
    """A sender whose key is of small order, for which one signature fits every message, is refused."""
    await start(world)
    shard = NETWORK.shard_of(weak)
    tx = msgspec.structs.replace(
        transfer(ALICE), sender=weak, relayer=RELAYERS[shard].public, signature=b"\1" + bytes(63)
    )
    assert await submit(world, tx) == ["invalid signature"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"nonce":0', '"nonce":0,"nonce":1'),
        ('"nonce":0', '"nonce":0.0'),
        ('"value":"0"', '"value":"00"'),
        ('"value":"0"', '"value":" 0"'),
        ('"chainID":"local"', '"chainID":"loc\\u0430l"'),
        ('"sender":"erd1', '"sender":"ERD1'),
    ],
)
async def test_row_21_ambiguous_bytes(world: Any, old: str, new: str) -> None:
    """What two readers could read in two ways is refused; the bytes that are signed are made from typed values."""
    await start(world)
    text = raw(transfer(ALICE))
    changed = msgspec.Raw(bytes(text).decode().replace(old, new).encode())
    assert bytes(changed) != bytes(text)
    submitter = world.service.submitter
    for document, accepted in ((changed, False), (text, True)):
        (result,) = await submitter.finish(await submitter.take(Origin("relay", "ip"), [document]))
        assert isinstance(result, Accepted) == accepted


def test_row_39_every_dependency_is_locked_by_hash() -> None:
    """What is installed is what was locked: each package of the registry is named with its hash."""
    root = Path(__file__).parents[2]
    locked = tomllib.loads((root / "uv.lock").read_text())["package"]
    fetched = [package for package in locked if "registry" in package["source"]]
    assert len(fetched) > 50
    for package in fetched:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        assert files and all(item["hash"].startswith("sha256:") for item in files), package["name"]


def test_rows_have_the_tests_the_page_names() -> None:
    """Each row of the page's table of threats has a test with the row's number in its name, in every file it names."""
    root = Path(__file__).parents[2]
    table = (root / "docs" / "relayer-inside.md").read_text().partition("## Threats")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")
    ]
    numbers = []
    for row, _, _, files in rows[1:]:
        for number in row.split(", "):
            numbers.append(int(number))
            found = [name.strip(" `") for name in files.split(",")]
            texts = ["".join(file.read_text() for file in (root / "tests").rglob(f"{name}.py")) for name in found]
            assert all(re.search(rf"def test_\w*row_{number}(?!\d)", text) for text in texts), (number, found)
    assert numbers == [*range(1, 13), *range(14, 18), *range(19, 24), *range(26, 45), 46, 48, 49, 51, 53]


async def test_rest_and_websocket_agree(world: Any) -> None:
    """The same transactions get the same answers by /v1/broadcast and by /ws, hash by hash and reason by reason."""
    await start(world)
    plain = {"relayed": False, "gas_limit": 50_000}
    txs = [transfer(ALICE, 0, **plain), transfer(ALICE, 5, **plain), transfer(ALICE, 1, **plain)]
    txs[2] = msgspec.structs.replace(txs[2], signature=bytes(64))
    async with connected(world.ws) as client, aiohttp.ClientSession(world.http) as http:
        spoken = await client.ask(action="broadcast", txs=[as_json(tx) for tx in txs])
        async with http.post("/v1/broadcast", json={"transactions": [as_json(tx) for tx in txs]}) as response:
            written = await response.json()
        relayed = await client.ask(action="relay", tx=as_json(transfer(wallet(2))))
        async with http.post("/v1/sign", json={"transactions": [as_json(transfer(wallet(2)))]}) as response:
            signed = await response.json()
    assert [item["reason"] for item in spoken["failed"]] == ["nonce too high", "invalid signature"]
    assert written == spoken
    assert signed["results"] == relayed["results"], "one signature, whoever asks for it"


async def test_what_its_sender_pays_for_is_not_judged(world: Any) -> None:
    """A broadcast whose data cannot be read is its sender's affair: taken, kept over a restart, sent."""
    await start(world, '[lists]\ndeny_functions = ["burn"]')
    data = b"ESDTTransfer@" + TOKEN + b"@01@6275726e@0"
    tx = transfer(ALICE, relayed=False, data=data, gas_limit=900_000)
    assert await submit(world, tx, kind="broadcast") == ["ok"]
    await world.stop()
    await start(world)
    assert await submit(world, tx, kind="broadcast") == ["ok"]
    assert len(world.service.lifecycle.inflight) == 1


async def test_a_block_moves_the_nonce_by_itself(world: Any) -> None:
    """A final block that has a transaction raises its sender's nonce, even if it says nothing of the account."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    asked = len(world.api.asked)
    Chain(world, 1).final([entry_of(world, transfer(ALICE)).tx])
    assert world.service.book.get(ALICE.public).nonce == 1
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]
    assert len(world.api.asked) == asked, "nobody had to be asked"


FOREIGN = wallet(1, 30)


def foreign(nonce: int = 0, *, sender: KeyPair = ALICE) -> Transaction:
    """A transaction that a relayer of somebody else pays for, signed by both."""
    tx = transfer(sender, nonce, relayer=FOREIGN.public)
    return msgspec.structs.replace(tx, relayer_signature=FOREIGN.sign(signing_message(tx)))


async def test_row_7_a_foreign_relayer_must_be_able_to_pay(world: Any) -> None:
    """What another relayer pays for is taken while that relayer has the fees, those of what is in flight included."""
    await start(world)
    fee = 100_000 * GAS_PRICE
    world.api.set(FOREIGN.public, 0, 2 * fee + fee // 2)
    answers = await submit(world, foreign(0), foreign(1), foreign(2), kind="broadcast")
    assert answers == ["ok", "ok", "insufficient balance"]
    paid = transfer(FOREIGN, relayed=False, gas_limit=50_000, value=fee // 2)
    assert await submit(world, paid, kind="broadcast") == ["insufficient balance"], "its own money is promised already"
    Chain(world, 1).final([foreign(0), foreign(1)])
    assert await submit(world, paid, kind="broadcast") == ["ok"]


async def test_row_7_in_flight_of_one_address(world: Any) -> None:
    """One address has so many transactions in flight and no more; another address is served, and room comes back."""
    await start(world, "[quotas]\nip_in_flight = 2")
    assert await submit(world, foreign(0), foreign(1), foreign(2), kind="broadcast") == [
        "ok", "ok", "too many transactions in flight",
    ]  # fmt: skip
    assert await submit(world, foreign(2), kind="broadcast", ip="another") == ["ok"]
    Chain(world, 1).final([foreign(0)])
    assert await submit(world, transfer(wallet(1, 3))) == ["ok"]
    assert await submit(world, transfer(wallet(1, 4))) == ["too many transactions in flight"]


async def test_row_7_broadcasts_leave_room_for_what_is_paid_for(world: Any) -> None:
    """Broadcasts, which cost nobody here anything, fill half of the table; the rest is for sponsored transactions."""
    await start(world)
    world.service.lifecycle.inflight._capacity = 4
    assert await submit(world, foreign(0), foreign(1), foreign(2), kind="broadcast") == ["ok", "ok", "relayer busy"]
    assert await submit(world, *(transfer(wallet(1, number)) for number in range(3, 6))) == ["ok", "ok", "relayer busy"]


def test_the_page_shows_the_default_policy() -> None:
    """The policy file on the relayer's page is the default, entry by entry."""
    root = Path(__file__).parents[2]
    text = (root / "docs" / "relayer-operating.md").read_text().partition("```toml\n")[2].partition("```")[0]
    shown = loads(text)
    assert shown == Policy()
    for table in ("caps", "budget", "quotas", "strangers", "lists"):
        assert set(tomllib.loads(text)[table]) == set(getattr(shown, table).__struct_fields__)


async def test_row_23_others_get_their_turn_in_a_long_batch(world: Any) -> None:
    """However long its transactions are, a batch is read and verified in slices between which others run."""
    await start(world)
    signed = transfer(ALICE, relayed=False, data=b"A" * 29_000)
    one = msgspec.structs.replace(signed, signature=transfer(ALICE, 1, relayed=False).signature)
    turns, done = 0, False

    async def count() -> None:
        nonlocal turns
        while not done:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    answers = await submit(world, *[one] * 100, kind="broadcast")
    done = True
    await counting
    assert answers == ["invalid signature"] * 100
    assert turns >= 99, "one of them is a part by itself, and after each part others have their turn"
    assert len(world.service.submitter._taking) == len(world.service.submitter._finisher._shares) == 0


async def test_row_23_long_batches_rest_while_others_are_there(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each part of a long batch everything belongs to the others, unless there are none."""
    assert submitter.REST >= 1 and submitter.LONGEST_REST >= 0.005, "a rest is worth having"
    await start(world)
    world.service.submitter._company = Company(1.0, clock=lambda: 0.0)  # whoever has been there is still there
    monkeypatch.setattr(submitter, "REST", 1e9)
    monkeypatch.setattr(submitter, "LONGEST_REST", 1e9)
    first, second = ([transfer(wallet(1, number), nonce) for nonce in range(100)] for number in (0, 1))
    assert await submit(world, *first, ip="long") == ["ok"] * 100, "nobody else is there"
    assert await submit(world, transfer(wallet(1, 2)), ip="short") == ["ok"]
    resting = asyncio.create_task(submit(world, *second, ip="long"))
    for nonce in range(1, 10):
        assert await submit(world, transfer(wallet(1, 2), nonce), ip="short") == ["ok"]
    assert not resting.done()
    resting.cancel()
    await asyncio.gather(resting, return_exceptions=True)
    assert len(world.service.submitter._taking) == 0


@pytest.mark.parametrize(
    ("stage", "shares", "most"),
    [("_take_part", "_taking", submitter.TAKING), ("_write", "_shares", finisher.FINISHING)],
)
async def test_row_23_one_client_has_so_much_under_way(
    world: Any, monkeypatch: pytest.MonkeyPatch, stage: str, shares: str, most: int
) -> None:
    """Whatever one client asks for at once, a bounded part of it is between two stages, and others get theirs."""
    await start(world)
    submitter = world.service.submitter
    submitter._company.is_alone = lambda client: False
    inside: Counter[str] = Counter()
    go_on = asyncio.Event()
    half = submitter if stage == "_take_part" else submitter._finisher
    pass_on = getattr(half, stage)

    async def hold(*arguments: Any) -> Any:
        last = arguments[-1]
        batch = last[0].batch if isinstance(last, list) else last
        inside[batch.origin.ip] += 1
        await go_on.wait()
        return await pass_on(*arguments)

    monkeypatch.setattr(half, stage, hold)
    batches = [[transfer(wallet(1, number), nonce) for nonce in range(PART)] for number in range(8)]
    asking = [asyncio.create_task(submit(world, *batch, ip="many")) for batch in batches]
    asking.append(asyncio.create_task(submit(world, transfer(wallet(1, 9)), ip="few")))
    async with asyncio.timeout(10):
        while inside["many"] + len(getattr(half, shares)._waiting.get("many", ())) < 8 or not inside["few"]:
            await asyncio.sleep(0)
    assert inside == {"many": most // PART, "few": 1}
    go_on.set()
    assert await asyncio.gather(*asking) == [["ok"] * PART] * 8 + [["ok"]]


async def test_row_23_many_short_batches_of_who_is_alone(world: Any) -> None:
    """Whoever has the service to itself is served as well in many short batches, and leaves nothing behind."""
    await start(world)
    submitter = world.service.submitter
    submitter._company.is_alone = lambda client: True
    txs = [transfer(wallet(1, number % 4), number // 4) for number in range(120)]
    orders = [txs[:1], txs[1:2], txs[2:3], txs[3:4], txs[4:]]
    answers = await asyncio.gather(*(submit(world, *order) for order in orders))
    assert answers == [["ok"] * len(order) for order in orders]
    assert len(submitter._taking) == len(submitter._finisher._shares) == 0


async def test_row_31_any_origin_no_cookies(world: Any) -> None:
    """Every site may use the public interface: nothing in it depends on who asks, no cookie is set, REST wants JSON."""
    await start(world)
    headers = {"Origin": "https://evil.example", "Cookie": "session=1"}
    async with aiohttp.ClientSession() as client:
        async with client.ws_connect(world.ws, headers=headers) as socket:
            await socket.send_json({"action": "subscribe", "topic": "accounts"})
            assert (await socket.receive_json(timeout=10))["status"] == "ok"
            assert "Set-Cookie" not in socket._response.headers
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            forged = headers | {"Content-Type": content_type}
            async with client.post(f"{world.http}/v1/sign", data=b'{"transactions":[]}', headers=forged) as answer:
                assert answer.status == 400 and "application/json" in await answer.text()
                assert "Set-Cookie" not in answer.headers and "Access-Control-Allow-Origin" not in answer.headers


async def test_row_31_listed_sites_may_use_rest(world: Any) -> None:
    """Only pages of sites that the operator names may post JSON from a browser and read what comes of it."""
    await start(world, allowed_origins=("https://wallet.example",))
    for origin, status in (("https://wallet.example", 204), ("https://evil.example", 405)):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        async with aiohttp.ClientSession() as client, client.options(f"{world.http}/v1/sign", headers=asked) as answer:
            assert answer.status == status
            assert answer.headers.get("Access-Control-Allow-Origin") == (origin if status == 204 else None)


async def test_row_33_gas_statistics_are_small(world: Any) -> None:
    """What one small subscription brings twenty times a second is at most 512 bytes for each shard."""
    await start(world)
    for shard in range(3):
        largest = [(2**64 - number, 2**64 - number) for number in range(1, 300)]
        world.service.statistics.gas.add(shard, largest, time.monotonic())
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="gasStats")
        for _ in range(6):
            assert len(msgspec.json.encode(await client.push())) <= 512


async def test_row_49_paths_make_no_series(world: Any) -> None:
    """Whatever paths, topics, actions and reasons clients think up, the number of metrics' series stays what it is."""
    await start(world)

    def series() -> int:
        text = generate_latest(make_registry(world.service.measured()))
        return sum(not line.startswith(b"#") for line in text.splitlines())

    async def visit(name: str) -> None:
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{world.http}/{name}") as answer:
                assert answer.status == 404
            async with client.request(f"X{name}".upper(), f"{world.http}/health") as answer:
                assert answer.status in (400, 405)
        async with connected(world.ws) as socket:
            await socket.ask(action="subscribe", topic=name)
            await socket.ask(action=name)

    await visit("first")
    before = series()
    for number in range(20):
        await visit(f"other{number}")
    assert series() == before
