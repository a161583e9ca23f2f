"""What attackers measured of the keys' money, attack by attack: each was done to a running relayer from outside."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import generate_latest
from relayer_support import GAS_PRICE, RELAYERS, Chain, Client, as_json, entry_of, raw, start, submit, transfer, wallet

from millrace.chain import address, outport
from millrace.chain.transaction import Transaction, chain_hash, signing_message
from millrace.relayer.journal import programmes as rows
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger.budget import Spender
from millrace.relayer.metrics import make_registry
from millrace.relayer.rules.policy import CallName, PolicyError, hash_of_key
from millrace.relayer.rules.stages import Origin
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.submission import overdue
from millrace.relayer.submission.batch import Accepted

FEE = 100_000 * GAS_PRICE
"""What a transfer can cost; blocks charge half of it."""
EGLD = 10**18
KEY = RELAYERS[1].public


class Ledger:
    """What the chain itself has of a key: it runs what the key can pay for, and nothing else."""

    def __init__(self, world: Any, balance: int, *, height: int = 0) -> None:
        self.world = world
        self.chain = Chain(world, 1)
        self.balance = balance
        self.ran = 0

    def run(self, txs: list[Transaction]) -> None:
        """A final block with what can be paid for."""
        done = []
        for tx in txs:
            if self.balance >= FEE:  # the worst case is taken first, and half of it comes back
                self.balance -= 50_000 * GAS_PRICE
                done.append(tx)
        self.ran += len(done)
        self.chain.final(done)


async def refusals(world: Any, *txs: Any) -> list[str]:
    return sorted(set(await submit(world, *txs)))


async def test_a_key_with_three_egld_and_twelve_wallets(world: Any) -> None:
    """Twelve wallets at once get no more than the key can pay: each that was accepted runs, and the floor holds."""
    floor, holds = 7 * FEE, 40 * FEE + FEE // 2
    world.api.set(KEY, 0, holds)
    await start(world, f"[budget]\nfloor_balance = {floor}\n")
    ledger = Ledger(world, holds)
    wallets, accepted = [wallet(1, number) for number in range(12)], 0
    nonces = dict.fromkeys(range(12), 0)
    for _ in range(12):
        under_way = []
        for number, pair in enumerate(wallets):
            for _ in range(10):
                tx = transfer(pair, nonces[number])
                (answer,) = await submit(world, tx)
                if answer != "ok":
                    assert answer == "relayer balance too low"
                    break
                nonces[number] += 1
                under_way.append(entry_of(world, tx).tx)
        accepted += len(under_way)
        assert ledger.balance - FEE * len(under_way) >= floor, "also when all of them cost the most they can"
        ledger.run(under_way)
    assert ledger.ran == accepted
    assert floor <= ledger.balance < floor + FEE, (
        "to the unit: not one more could be paid for, and none was refused early"
    )


async def test_a_new_key_that_is_empty_accepts_nothing(world: Any) -> None:
    """An empty key is known to be empty before the first transaction comes, and `/ready` says what it lacks."""
    for pair in RELAYERS.values():
        world.api.set(pair.public, 0, 0)
    await start(world)
    assert await refusals(world, transfer(wallet(1))) == ["relayer balance too low"]
    async with aiohttp.ClientSession(world.http) as http, http.get("/ready") as answer:
        body = await answer.json()
    assert answer.status == 503 and body["ready"] is False
    assert body["relayers"]["1"]["state"] == "short of funds" and body["relayers"]["1"]["missing"] == str(FEE)


async def test_an_unknown_balance_is_a_refusal(world: Any) -> None:
    """While the chain API says nothing of a key it pays for nothing; a gap in the events makes it unknown again."""
    await start(world)
    sponsor = world.service.lifecycle.sponsor
    assert await submit(world, transfer(wallet(1))) == ["ok"]
    world.api.down = True
    sponsor.balances.forget_all()
    assert await submit(world, transfer(wallet(1), 1)) == ["account state unavailable"]
    assert sponsor.state_of(KEY).condition == "unknown balance" and not world.service.is_ready()
    world.api.down = False
    world.service.key_balances._asked_at.clear()
    await world.service.key_balances.refresh()
    assert await submit(world, transfer(wallet(1), 1)) == ["ok"]


async def test_a_refill_counts_when_its_block_is_final(world: Any) -> None:
    """A transfer to the key that the stream tells is there at once when it is final, and not before."""
    world.api.set(KEY, 0, FEE // 2)
    await start(world)
    chain, donor = Chain(world, 1), wallet(1, 7)
    assert await submit(world, transfer(wallet(1))) == ["relayer balance too low"]
    refill = transfer(donor, relayed=False, receiver=KEY, value=2 * FEE)
    block = chain.save([refill], accounts={donor.public: (1, 5), KEY: (0, 2 * FEE + FEE // 2)})
    assert await submit(world, transfer(wallet(1))) == ["relayer balance too low"]
    chain.finalise(block)
    txs = [transfer(wallet(1), nonce) for nonce in range(3)]
    assert await submit(world, *txs) == ["ok", "ok", "relayer balance too low"]


async def test_a_policy_file_that_is_cut_lets_nobody_in(world: Any) -> None:
    """Cut in the middle or emptied, also over a restart: denied senders stay denied, a small budget stays small."""
    alice, bob = wallet(1), wallet(1, 1)
    denied = f'[budget]\nper_minute = {FEE}\n[lists]\ndeny_senders = ["{address.encode(alice.public)}"]\n'
    await start(world, denied)
    file = world.folder / "policy.toml"
    for size in (0, len("[budget]\n"), denied.index("[lists]"), len(denied) - 3):
        file.write_text(denied[:size])
        with contextlib.suppress(PolicyError):
            await world.service.policy_keeper.read()
        policy = world.service.lifecycle.sponsor.policy
        assert policy.budget.per_minute == FEE and policy.lists.deny_senders
        assert b"relayer_policy_rejected 1.0" in generate_latest(make_registry(world.service.measured()))
    assert await submit(world, transfer(alice)) == ["sender not allowed"]
    file.write_text("")
    await world.stop()
    await world.start(policy_file=str(file))
    assert await submit(world, transfer(alice)) == ["sender not allowed"]
    assert await submit(world, transfer(bob), transfer(bob, 1)) == ["ok", "budget exhausted"]


KEPT = 50_000 * GAS_PRICE
"""What a stranger's account has to hold for /v1/sign beyond what it may spend."""


async def test_sign_only_for_wallets_without_a_coin(world: Any) -> None:
    """Four addresses with empty wallets get nothing signed to keep, with funded ones not all of what may be kept."""
    budget = (
        f"[budget]\nat_risk_sign_only = {40 * FEE}\n[caps]\nfee = {FEE}\n[quotas]\nsender_at_risk_sign_only = {FEE}\n"
        "[people.wallet]\n"
    )
    await start(world, budget)
    strangers, funded = [wallet(1, number) for number in range(4)], [wallet(1, 4 + number) for number in range(40)]
    for number, pair in enumerate(strangers):
        world.api.set(pair.public, number, 0)
    unfunded = [transfer(pair, number) for number, pair in enumerate(strangers)]
    assert set(await submit(world, *unfunded, kind="sign")) == {"insufficient balance"}, "whatever it sent before"
    taken = []
    for number in range(4):
        to = wallet(1, 60 + number % 2).public  # one receiver has a share, too
        txs = [transfer(pair, receiver=to) for pair in funded[number * 10 : number * 10 + 10]]
        answers = await submit(world, *txs, kind="sign", ip=f"10.0.0.{number}")
        assert set(answers) <= {"ok", "quota exhausted"}
        taken.append(answers.count("ok"))
    assert taken == [10, 6, 3, 2], "of 30 for strangers a quarter of 40, then ever smaller parts of what is left"
    last = wallet(1, 44)
    assert await submit(world, transfer(last), kind="sign", ip="10.0.0.9") == ["ok"], "open to others"
    known = [transfer(wallet(1, 70 + number)) for number in range(10)]
    assert await submit(world, *known, kind="sign", person="wallet") == ["ok"] * 10, "and to known people"


async def test_sign_only_wants_more_than_the_value(world: Any) -> None:
    """What is only signed has to be of an account that keeps something beyond all that it may spend."""
    await start(world)
    alice = wallet(1)
    world.api.set(alice.public, 5, 2 * 700 + KEPT)
    assert await submit(world, transfer(alice, 5, value=1401), kind="sign") == ["insufficient balance"]
    assert await submit(world, transfer(alice, 5, value=700), kind="sign") == ["ok"]
    assert await submit(world, transfer(alice, 6, value=701), kind="sign") == ["insufficient balance"]
    assert await submit(world, transfer(alice, 6, value=701)) == ["ok"], "sent at once it may"


@pytest.mark.parametrize("pool", ["per_minute", "per_hour", "per_day", "at_risk", "loss_per_hour"])
async def test_however_many_strangers_ask_known_people_have_theirs(world: Any, pool: str) -> None:
    """Forty addresses with new wallets, whose calls fail, take at most three quarters of any pool of a key."""
    await start(world, f"[budget]\n{pool} = {40 * FEE}\n[caps]\nfee = {FEE}\n[people.wallet]\n")
    chain, taken = Chain(world, 1), 0
    for number in range(40):
        to = wallet(1, 60 + number % 3).public
        txs = [transfer(wallet(1, number), nonce, receiver=to) for nonce in range(2)]
        answers = await submit(world, *txs, ip=f"10.0.{number}.1")
        taken += answers.count("ok")
        if pool == "loss_per_hour":
            whole = [entry_of(world, tx).tx for tx, answer in zip(txs, answers, strict=True) if answer == "ok"]
            chain.final(whole, failing={chain_hash(tx): "no" for tx in whole})
    known = [transfer(wallet(1, 70 + number)) for number in range(10)]
    assert await submit(world, *known, person="wallet") == ["ok"] * 10
    assert taken >= 30, "and strangers are not kept from their part"


async def test_what_was_only_signed_is_broadcast_at_last(world: Any) -> None:
    """What /v1/sign signed and nobody sent is sent by the relayer once its time is over, if it can run then."""
    await start(world, "[strangers]\nsign_only_seconds = 0.0")
    alice, service = wallet(1), world.service
    assert await submit(world, transfer(alice), transfer(alice, 1), kind="sign") == ["ok", "ok"]
    for entry in service.lifecycle.inflight.entries():
        entry.created_ms -= 1
    await service.tidier.overdue.work()
    (sent,) = await world.api.wait_submitted(1)
    assert sent["nonce"] == 0, "the other one cannot run yet"
    world.service.lifecycle.nonce_moved(alice.public, 1)
    service.book.raise_nonce(alice.public, 1)
    await service.tidier.overdue.work()
    assert (await world.api.wait_submitted(2))[1]["nonce"] == 1


async def test_what_is_overdue_is_worked_off_in_the_order_of_nonces(world: Any) -> None:
    """Of each sender all that can run now is sent at once, as far ahead as nodes take it, however many are overdue."""
    await start(
        world,
        f"[strangers]\nsign_only_seconds = 0.0\naddress_percent = 100\nreceiver_percent = 100\n"
        f"[quotas]\nsender_in_flight = 250\nsign_only_ahead = 250\nsender_at_risk_sign_only = {EGLD}",
    )
    alice, service = wallet(1), world.service
    others = [wallet(1, 1 + number) for number in range(12)]
    poor = others[0]
    world.api.set(poor.public, 0, KEPT + 5)
    for start_at in (0, 100):
        txs = [transfer(alice, start_at + number) for number in range(100)]
        assert await submit(world, *txs, kind="sign") == ["ok"] * 100
    assert await submit(world, transfer(poor, value=3), transfer(poor, 1, value=2), kind="sign") == ["ok"] * 2
    world.api.set(poor.public, 0, 3)
    service.book.learn_from_event(poor.public, 0, 3)
    assert await submit(world, *map(transfer, others[1:]), kind="sign") == ["ok"] * 11
    for entry in service.lifecycle.inflight.entries():
        entry.created_ms -= 1

    def sent(pair: Any) -> list[int]:
        entries = service.lifecycle.inflight.of_sender(pair.public)
        return sorted(nonce for nonce, entry in entries.items() if entry.sending)

    await service.tidier.overdue.work()
    assert sent(alice) == list(range(100)) and sent(poor) == [0], "the balance does for one"
    assert all(sent(pair) == [0] for pair in others[1:])
    service.lifecycle.nonce_moved(alice.public, 100)
    service.book.raise_nonce(alice.public, 100)
    await service.tidier.overdue.work()
    assert sent(alice) == list(range(100, 200))


async def test_what_is_overdue_asks_the_chain_for_a_few_senders_at_a_time(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of accounts that nothing is known of a bounded number is asked for in each round; all have their turn."""
    monkeypatch.setattr(overdue, "ASKED_AT_ONCE", 2)
    await start(world, "[strangers]\nsign_only_seconds = 0.0\naddress_percent = 100\nreceiver_percent = 100\n")
    service, pairs = world.service, [wallet(1, number) for number in range(5)]
    assert await submit(world, *map(transfer, pairs), kind="sign") == ["ok"] * 5
    for entry in service.lifecycle.inflight.entries():
        entry.created_ms -= 1
    service.book.forget_all()
    asked, sending = len(world.api.asked), []
    for _ in range(3):
        await service.tidier.overdue.work()
        sending.append(sum(entry.sending for entry in service.lifecycle.inflight.entries()))
    assert sending == [2, 4, 5] and len(world.api.asked) == asked + 5


@pytest.mark.parametrize("hub", ["gone", "with a gap"])
async def test_what_was_only_signed_ends_when_its_end_was_not_heard(world: Any, hub: str) -> None:
    """A client sent what it had signed, and no event told of it: the chain API's nonce ends it, and its risk."""
    await start(world, "[strangers]\nsign_only_seconds = 0.0", **({"hub_url": ""} if hub == "gone" else {}))
    service, alice = world.service, wallet(1)
    assert await submit(world, transfer(alice), transfer(alice, 1), kind="sign") == ["ok", "ok"]
    for entry in service.lifecycle.inflight.entries():
        entry.created_ms -= 1
    if hub == "with a gap":
        service.events.on_gap(1, 2)
    world.api.set(alice.public, 1, EGLD)
    now = time.monotonic()
    service.accounts._clock = lambda: now + 1.0
    await service.tidier.overdue.work()
    (entry,) = service.lifecycle.inflight.entries()
    assert entry.tx.nonce == 1 and entry.sending
    sponsor = service.lifecycle.sponsor
    assert sponsor.committed(KEY) == FEE
    assert sponsor.budgets.standing(KEY, time.monotonic()).spent_day == 2 * FEE, "it may have cost all"


async def test_what_was_only_signed_is_kept_while_the_stream_is_whole(world: Any) -> None:
    """A chain API that is ahead of the stream ends nothing: a block will tell, and what it cost."""
    await start(world)
    alice = wallet(1)
    assert await submit(world, transfer(alice), kind="sign") == ["ok"]
    world.service.lifecycle.nonce_heard(alice.public, 1)
    assert len(world.service.lifecycle.inflight) == 1
    world.service.lifecycle.events_lost()
    (entry,) = world.service.lifecycle.inflight.entries()
    world.service.cosigner.send(entry)
    world.service.lifecycle.nonce_heard(alice.public, 1)
    assert len(world.service.lifecycle.inflight) == 1, "what is sent ends otherwise"


async def test_a_fee_of_a_transaction_that_is_not_in_the_journal_is_taken_off(world: Any) -> None:
    """What a key of ours pays in a final block, known here or not, makes its bound lower at once, and once."""
    world.api.set(KEY, 0, 9 * FEE)
    world.api.blocks[1] = 1, b"\1" + (1).to_bytes(31, "big")
    await start(world)
    chain, alice = Chain(world, 1), wallet(1)
    balances = world.service.lifecycle.sponsor.balances
    tx = transfer(alice)
    signed = msgspec.structs.replace(tx, relayer_signature=RELAYERS[1].sign(signing_message(tx)))
    before = balances.lower_bound(KEY)
    chain.final()
    block = chain.final([signed])
    assert before - FEE <= balances.lower_bound(KEY) <= before - FEE // 2
    after = balances.lower_bound(KEY)
    chain.finalise(block)
    assert balances.lower_bound(KEY) == after


async def test_row_44_a_clock_set_forward_broadcasts_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was only signed is its owner's for so long, whatever the clock is set to meanwhile."""
    await start(world)
    assert await submit(world, transfer(wallet(1)), kind="sign") == ["ok"]
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 7 * 86_400 * 10**9)
    await world.service.tidier.overdue.work()
    (entry,) = world.service.lifecycle.inflight.entries()
    assert not entry.sending


async def test_row_44_a_clock_set_forward_lets_no_programme_pay_anew(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a programme has paid is forgotten thirty days after it was in the policy, not when a clock says so."""
    await start(world)
    sponsor, real, asked = world.service.lifecycle.sponsor, time.time_ns, list[int]()

    def forget(rules: Any, now_ms: int) -> tuple[list[str], list[str]]:
        asked.append(now_ms)
        return [], []

    monkeypatch.setattr(sponsor.programmes, "forget", forget)
    monkeypatch.setattr(time, "time_ns", lambda: real() + 40 * 86_400 * 10**9)
    sponsor.prune()
    assert asked[0] <= real() // 1_000_000 + 1


async def test_what_was_only_signed_and_not_handed_out_is_not_broadcast(world: Any) -> None:
    """Who was told that nothing was signed has nothing sent, though it was signed later."""
    await start(world, "[strangers]\nsign_only_seconds = 0.0", sign_wait=0)
    service, tx = world.service, transfer(wallet(1))
    really, service.signer.sign = service.signer.sign, _unanswered
    assert await submit(world, tx, kind="sign") == ["signer unavailable"]
    service.signer.sign = really
    await service.cosigner.sign_missed()
    (entry,) = service.lifecycle.inflight.entries()
    entry.created_ms -= 1
    assert entry.state == "signed" and service.lifecycle.overdue(entry.created_ms + 1) == []
    assert await submit(world, tx, kind="sign") == ["ok"]
    assert service.lifecycle.overdue(entry.created_ms + 1) == [entry]


async def _unanswered(transactions: list[bytes]) -> Any:
    raise SignerError("gone")


async def test_failing_calls_under_invented_names_from_one_address(world: Any) -> None:
    """One address gets a share of a minute and no more; names that never succeeded are throttled as one function."""
    await start(world, f"[budget]\nper_minute = {40 * FEE}\n[caps]\nfee = {5 * FEE}\n[quotas]\ncall_sample = 5")
    contract = bytes(8) + b"\5\0" + b"c" * 20 + b"\0\1"
    chain, answers = Chain(world, 1), []

    def call(number: int, name: bytes) -> Transaction:
        return transfer(wallet(1, number), receiver=contract, data=name, gas_limit=120_000)

    fine = call(29, b"swap")
    assert await submit(world, fine, ip="10.0.0.8") == ["ok"]
    chain.final([entry_of(world, fine).tx])
    world.service.lifecycle.sponsor.reputation.learn(
        fine.sender, CallName(contract, "swap"), False, time.monotonic(), world.service.lifecycle.sponsor.policy.quotas
    )
    for number in range(12):
        tx = call(number, b"invented%d" % number)
        (answer,) = await submit(world, tx)
        answers.append(answer)
        if answer == "ok":
            whole = entry_of(world, tx).tx
            chain.final([whole], failing={chain_hash(whole): "no"})
    assert answers == ["ok"] * 5 + ["call throttled"] * 7
    plain = [transfer(wallet(1, 12 + number)) for number in range(12)]
    answers = await submit(world, *plain)
    assert 4 <= answers.count("ok") <= 8 and answers[-1] == "quota exhausted"
    others = [transfer(wallet(1, 24 + number)) for number in range(3)] + [call(28, b"swap")]
    assert await submit(world, *others, ip="10.0.0.9") == ["ok"] * 4


async def test_known_people_have_budgets_of_their_own(world: Any) -> None:
    """Who shows an API key is bounded by a budget of their own, not by a stranger's share; a wrong key is told."""
    key = "k" * 40
    policy = (
        f"[budget]\nper_minute = {40 * FEE}\n[caps]\nfee = {FEE}\n[strangers]\naddress_percent = 10\n"
        f'[people.wallet]\nkeys = ["{hash_of_key(key)}"]\nper_minute = {6 * FEE}'
    )
    await start(world, policy)
    mine = {"transactions": [as_json(transfer(wallet(1, number))) for number in range(8)]}
    async with aiohttp.ClientSession(world.http) as http:
        reasons = {}
        for shown, name in ((key, "known"), ("other", "wrong"), ("", "stranger")):
            headers = {"Authorization": f"Bearer {shown}"} if shown else {}
            async with http.post("/v1/sign", json=mine, headers=headers) as answer:
                reasons[name] = answer.status, await answer.json()
    assert len(reasons["known"][1]["transactions"]) == 6
    assert {item["detail"] for item in reasons["known"][1]["failed"]} == {"the budget of wallet is used up"}
    assert reasons["wrong"] == (401, {"error": "invalid api key: " + reasons["wrong"][1]["error"].partition(": ")[2]})
    assert len(reasons["stranger"][1]["transactions"]) == 8, "the same bytes again, and two more of a share of four"
    strangers = [transfer(wallet(1, 10 + number)) for number in range(6)]
    assert (await submit(world, *strangers)).count("ok") == 4, "their own share"
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer no"}) as http, http.ws_connect(world.ws) as ws:
        client = Client(ws)
        assert (await client.ask(action="relay", tx=as_json(strangers[0])))["reason"] == "invalid api key"


async def test_what_known_people_spent_is_theirs_after_a_restart(world: Any) -> None:
    """It counts in their budget, and not against the address it came from; what they signed only is not broadcast."""
    policy = (
        f"[budget]\nper_minute = {40 * FEE}\n[caps]\nfee = {FEE}\n[strangers]\naddress_percent = 10\n"
        f"[people.wallet]\nper_minute = {4 * FEE}\nloss_per_hour = {4 * FEE}\n"
    )
    await start(world, policy)
    theirs = [transfer(wallet(1, number)) for number in range(4)]
    assert await submit(world, *theirs, kind="sign", person="wallet") == ["ok"] * 4
    whole = entry_of(world, theirs[0]).tx
    Chain(world, 1).final([whole], failing={chain_hash(whole): "no"})
    assert await submit(world, transfer(wallet(1, 9)), person="wallet") == ["quota exhausted"]
    await world.stop()
    await start(world, policy)
    assert await submit(world, transfer(wallet(1, 9)), person="wallet") == ["quota exhausted"]
    assert world.service.lifecycle.overdue(2**62) == []
    strangers = [transfer(wallet(1, 10 + number)) for number in range(6)]
    assert (await submit(world, *strangers)).count("ok") == 4, "the share of their address is as it was"
    await world.stop()
    await start(world, policy.partition("[people")[0])
    assert await submit(world, strangers[5]) == ["quota exhausted"], "whom the policy names no more is a stranger"


async def test_only_who_needs_it_is_sponsored(world: Any) -> None:
    """Where the policy says so, who holds enough pays for itself."""
    await start(world, "[strangers]\nsponsor_below = 1000")
    world.api.set(wallet(1).public, 0, 999)
    world.api.set(wallet(1, 1).public, 0, 1000)
    assert await submit(world, transfer(wallet(1)), transfer(wallet(1, 1))) == ["ok", "sender not allowed"]


async def test_a_superseded_transaction_costs_nothing(world: Any) -> None:
    """Whose nonce another transaction took gives everything back: budget, quota, and what is at risk."""
    await start(world, f"[budget]\nper_minute = {FEE}\n[quotas]\nsender_per_hour = {FEE}")
    alice = wallet(1)
    assert await submit(world, transfer(alice), kind="sign") == ["ok"]
    assert await submit(world, transfer(alice, 1), kind="sign") == ["budget exhausted"]
    own = transfer(alice, relayed=False, data=b"x")
    Chain(world, 1).final([own], accounts={alice.public: (1, EGLD)})
    assert world.service.lifecycle.sponsor.committed(KEY) == 0
    assert await submit(world, transfer(alice, 1), kind="sign") == ["ok"]


async def test_what_was_paid_a_moment_before_a_restart_is_not_forgotten(world: Any) -> None:
    """A chain API that lags behind does not give a key back what it paid before the service was started again."""
    world.api.set(KEY, 0, 3 * FEE)
    await start(world)
    chain, alice = Chain(world, 1), wallet(1)
    assert await submit(world, transfer(alice)) == ["ok"]
    chain.final([entry_of(world, transfer(alice)).tx])
    await world.service.journal.flush()
    await world.stop()
    await start(world)
    assert world.service.lifecycle.sponsor.spendable(KEY) == 3 * FEE - 50_000 * GAS_PRICE


async def test_a_fee_of_a_block_without_a_height_is_taken_off(world: Any) -> None:
    """A header that cannot be read gives no height, and height 0 would be older than any reading."""
    world.api.set(KEY, 0, 3 * FEE)
    world.api.blocks[1] = 1, b"\1" + (1).to_bytes(31, "big")
    await start(world)
    balances = world.service.lifecycle.sponsor.balances
    chain, alice = Chain(world, 1), wallet(1)
    assert await submit(world, transfer(alice)) == ["ok"]
    chain.final()
    block = chain.maker.block([entry_of(world, transfer(alice)).tx], accounts={KEY: (0, 9 * FEE)})
    block.blockData.headerBytes = b"no header"
    chain.tell(outport.SAVE_BLOCK, block)
    chain.finalise(block)
    assert balances.lower_bound(KEY) == 3 * FEE - 50_000 * GAS_PRICE
    assert KEY in balances.wanted, "what it says of the key cannot be placed"


async def test_what_was_written_off_has_to_be_payable_until_its_nonce_is_used(world: Any) -> None:
    """A write-off frees budget and quota, and never the money: not after a restart, until the chain is past it."""
    world.api.set(KEY, 0, 2 * FEE)
    await start(world)
    alice, bob = wallet(1), wallet(1, 1)
    assert await submit(world, transfer(alice), kind="sign") == ["ok"]
    entry = entry_of(world, transfer(alice))
    assert world.service.lifecycle.write_off(entry.client_hash)
    assert world.service.lifecycle.sponsor.budgets.at_risk(KEY) == 0
    for _ in range(2):
        assert world.service.lifecycle.sponsor.spendable(KEY) == FEE
        assert await submit(world, transfer(bob), transfer(bob, 1)) == ["ok", "relayer balance too low"]
        await world.service.journal.flush()
        await world.stop()
        await start(world)
        world.service.lifecycle.nonce_moved(bob.public, 1)
        world.api.set(bob.public, 1, EGLD)
        bob = wallet(1, 2)
    chain = Chain(world, 1)
    world.service.lifecycle.nonce_moved(wallet(1, 1).public, 1)
    chain.final([entry.tx])
    assert world.service.lifecycle.sponsor.committed(KEY) == 0
    assert chain_hash(entry.tx) == entry.chain_hash
    assert world.service.lifecycle.sponsor.balances.lower_bound(KEY) == FEE, "it ran after all, and is paid"


SHOP = wallet(1, 60).public
"""Who a programme pays transfers to."""


async def test_what_is_left_is_told_of_each_limit_by_itself(world: Any) -> None:
    """A day's budget that is nearly used shows beside a minute's that is smaller: each is told with its own bound."""
    await start(world, f"[budget]\nper_minute = {8 * FEE}\nper_day = {10 * FEE}\n")
    world.service.lifecycle.sponsor.budgets.restore(Spender(KEY, b""), 9 * FEE, time.monotonic() - 120, sign_only=False)
    metrics = generate_latest(make_registry(world.service.measured())).decode()
    for limit, left, bound in (("per_minute", 8, 8), ("per_day", 1, 10)):
        assert f'relayer_budget_left_egld{{limit="{limit}",shard="1"}} {left * FEE / EGLD}' in metrics
        assert f'relayer_budget_egld{{limit="{limit}",shard="1"}} {bound * FEE / EGLD}' in metrics


def programme(**entries: object) -> str:
    """A policy in which hardly any stranger is sponsored, with a programme for transfers to the shop."""
    lines = {
        "receivers": f'["{address.encode(SHOP)}"]',
        "functions": '[""]',
        "until": "2999-01-01T00:00:00Z",
        "budget": 100 * FEE,
        "per_user": 100,
    } | entries
    table = "\n".join(f"{name} = {value}" for name, value in lines.items())
    return (
        f"[budget]\nper_minute = {40 * FEE}\n[caps]\nfee = {FEE}\n"
        f"[strangers]\nreceiver_percent = 10\nsponsor_below = 1\n[programmes.launch]\n{table}\n"
    )


def shopping(number: int, nonce: int = 0) -> Transaction:
    return transfer(wallet(1, number), nonce, receiver=SHOP)


async def test_a_programme_pays_what_strangers_do_not_get(world: Any) -> None:
    """What matches is bound by no share of its receiver and by no need; the same to somebody else is."""
    await start(world, programme())
    answers = await submit(world, *map(shopping, range(8)))
    assert answers == ["ok"] * 8, "a share of its receiver is four"
    assert await submit(world, transfer(wallet(1, 9))) == ["sender not allowed"], "no programme pays it"
    metrics = generate_latest(make_registry(world.service.measured())).decode()
    assert f'relayer_programme_left_egld{{programme="launch"}} {92 * FEE / EGLD}' in metrics
    assert 'relayer_programme_users{programme="launch"} 8.0' in metrics


async def test_a_programme_that_has_ended_pays_nothing(world: Any) -> None:
    """After its end a programme's transactions are judged as strangers'."""
    await start(world, programme(until="2020-01-01T00:00:00Z"))
    assert await submit(world, shopping(0)) == ["sender not allowed"]
    assert world.service.lifecycle.sponsor.programmes.users("launch") == 0


async def test_the_bounds_of_a_programme_hold_over_restarts(world: Any) -> None:
    """Count and budget are what they were, whether a transaction was over or under way when the service stopped."""
    policy = programme(per_user=2, budget=3 * FEE)
    await start(world, policy)
    sponsor, left = world.service.lifecycle.sponsor, []

    def note() -> int:
        sponsor = world.service.lifecycle.sponsor
        left.append(sponsor.programmes.left("launch", sponsor.policy.programmes["launch"], 0))
        return left[-1]

    assert await submit(world, *(shopping(0, nonce) for nonce in range(3))) == ["ok", "ok", "sender not allowed"]
    Chain(world, 1).final([entry_of(world, shopping(0)).tx])
    assert note() == 3 * FEE - FEE // 2 - FEE
    for _ in range(2):
        await world.service.journal.flush()
        await world.stop()
        await start(world, policy)
        assert note() == left[0] and world.service.lifecycle.sponsor is not sponsor
        world.api.set(wallet(1).public, 1, EGLD)
        assert await submit(world, shopping(0, 2)) == ["sender not allowed"], "its count is used up"
    assert await submit(world, shopping(1), shopping(2)) == ["ok", "sender not allowed"], "half a fee is left"
    world.service.lifecycle.nonce_moved(wallet(1, 1).public, 1)
    assert note() == left[0], "what was superseded cost nothing"
    assert await submit(world, shopping(2)) == ["ok"]


async def test_what_is_not_paid_by_the_key_is_not_charged_to_the_programme(world: Any) -> None:
    """A refusal takes nothing of a programme, nor what a person pays; what is written off counts as paid."""
    await start(world, programme().replace(f"per_minute = {40 * FEE}", f"per_minute = {2 * FEE}") + "[people.wallet]\n")
    submitter, lifecycle = world.service.submitter, world.service.lifecycle
    batch = await submitter.take(Origin("relay", "ip", "wallet"), [raw(shopping(2))])
    assert isinstance((await submitter.finish(batch))[0], Accepted)
    assert lifecycle.sponsor.programmes.users("launch") == 0
    assert await submit(world, shopping(0), shopping(1)) == ["ok", "budget exhausted"]
    assert lifecycle.sponsor.programmes.users("launch") == 1
    entry = entry_of(world, shopping(0))
    assert lifecycle.write_off(entry.client_hash)
    assert lifecycle.sponsor.programmes.left("launch", lifecycle.sponsor.policy.programmes["launch"], 0) == 99 * FEE


async def test_what_did_not_get_to_the_disk_is_given_back_to_the_programme(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission whose row cannot be written takes neither budget nor count, and may come again."""
    await start(world, programme(per_user=1, budget=FEE))

    async def full(*_: object) -> None:
        raise JournalError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(world.service.journal, "append", full)
        assert await submit(world, shopping(0)) != ["ok"]
    programmes = world.service.lifecycle.sponsor.programmes
    assert programmes.users("launch") == 0
    assert await submit(world, shopping(0)) == ["ok"] and programmes.users("launch") == 1


async def test_a_charge_whose_transaction_is_followed_no_more_counts_as_paid(world: Any) -> None:
    """What a safe start has ended may have run: the next start counts all of it, once, and leaves nothing open."""
    await start(world, programme())
    charge = rows.Charge(b"h" * 32, "launch", b"s" * 32, FEE)
    world.service.journal.change(lambda connection: rows.write(connection, [charge]))
    for _ in range(2):
        await world.service.journal.flush()
        await world.stop()
        await start(world, programme())
        sponsor = world.service.lifecycle.sponsor
        assert sponsor.programmes.left("launch", sponsor.policy.programmes["launch"], 0) == 99 * FEE
    assert rows.charges(world.service.journal.read) == []
    assert [user[:4] for user in rows.users(world.service.journal.read)] == [("launch", b"s" * 32, 1, FEE)]
