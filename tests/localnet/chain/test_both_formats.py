"""Whatever format, delay, revert or change-over: the same transactions leave the same ledgers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment, encode, esdt_transfer
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet.market.market import WRAPPED
from millrace.localnet.settings import NEVER

EGLD = 10**18
TOKEN = "USDC-c76f1f"
KINDS = ("egld", "token", "multi", "wrap", "swap", "nonsense")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.integers(1, 3 * 10**6)
        ),
        st.tuples(st.just("rounds"), st.integers(1, 4)),
        st.tuples(st.just("revert"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("execution"), st.integers(0, 2), st.booleans()),
    ),
    min_size=1,
    max_size=40,
)


def transaction(
    bench: Any, wallet: Any, kind: str, source: int, target: int, relayed: bool, amount: int, nonce: int
) -> Transaction:
    """A transaction whose effect does not depend on its place among the others."""
    key, at = wallet(source), bench.chain.market.addresses
    to, value, data = wallet(target, 1).public, 0, b""
    fields: dict[str, Any] = {"nonce": nonce, "relayed": relayed}
    match kind:
        case "egld":
            value = amount
        case "token":
            data = esdt_transfer(TOKEN, amount)
        case "multi":
            payments = [TokenPayment(TOKEN, 0, amount), TokenPayment(NATIVE, 0, amount)]
            return bench.multi(key, to, payments, gas_limit=1_500_000 + 10 * amount, **fields)
        case "wrap":
            to, value, data = at.wrapper, amount, b"wrapEgld"
        case "swap":  # of a program that is none: it fails, and everything comes back
            to, data = at.aggregator, esdt_transfer(TOKEN, amount, "xo", b"\x01")
        case "nonsense":
            to, value, data = at.aggregator, amount, encode("xo", b"\x01")
    gas = 100_000 + 1500 * len(data) + (10 * amount if data else 0)
    return bench.tx(key, to, value, data, gas_limit=gas, **fields)


def supply(bench: Any) -> Counter[str]:
    """What accounts hold of every token; of EGLD, with the fees that blocks tell as collected."""
    total: Counter[str] = Counter({NATIVE: bench.fees()})
    for shard in bench.chain.shards.values():
        for account in shard.state.ledger.accounts.values():
            total[NATIVE] += account.balance
            total.update(account.tokens)
    return total


def funded(bench: Any, wallet: Any) -> Any:
    """A chain whose senders have plenty, all of it final."""
    for shard in range(3):
        bench.chain.give(wallet(shard).public, NATIVE, 100 * EGLD)
        bench.chain.give(wallet(shard).public, TOKEN, 10**12)
    bench.rounds(40)
    return bench


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=STEPS,
    delay=st.integers(1, 4),
    ahead=st.booleans(),
    finality=st.integers(0, 3),
    change=st.sampled_from([0, 5, 6, 7, NEVER]),
    lead=st.integers(0, 7),
)
def test_the_same_transactions_leave_the_same_ledgers(
    make_present: Any,
    wallet: Any,
    steps: list[Any],
    delay: int,
    ahead: bool,
    finality: int,
    change: int,
    lead: int,
) -> None:
    """Against a chain of the earlier format that nobody disturbs: equal ledgers, supply conserved."""
    plain = funded(make_present(supernova_epoch=NEVER), wallet)
    bench = funded(
        make_present(
            supernova_epoch=change,
            supernova_lead_rounds=lead,
            rounds_per_epoch=8,
            execution_delay=delay,
            executes_ahead=ahead,
            finality_rounds=finality,
        ),
        wallet,
    )
    before = supply(bench)
    sent: Counter[int] = Counter()
    hashes = []
    for step in steps:
        match step:
            case ("rounds", count):
                bench.rounds(count)
            case ("revert", shard, depth):
                bench.revert(shard, depth)
            case ("execution", shard, enabled):
                bench.chain.shards[shard].executes = enabled
            case (kind, source, target, relayed, amount):
                tx = transaction(bench, wallet, kind, source, target, relayed, amount, sent[source])
                sent[source] += 1
                plain.chain.submit(tx)
                hashes.append(bench.chain.submit(tx))
                bench.rounds()
    for shard in bench.chain.shards.values():
        shard.executes = True
    plain.rounds(10)
    bench.rounds(60)
    assert bench.state() == plain.state()
    after = supply(bench)
    after[WRAPPED] = before[WRAPPED]  # made by wrapping, for as much EGLD that the wrapper holds: in the ledgers above
    assert after == before
    assert [bench.status(tx_hash) for tx_hash in hashes] == [plain.status(tx_hash) for tx_hash in hashes]
    assert len({bench.status(tx_hash)[0] for tx_hash in hashes} - {"success", "fail"}) == 0
