"""Nothing that a client can sign stops the chain or makes money."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.chain.call import ESDT_TRANSFER, MULTI_TRANSFER, NFT_TRANSFER
from millrace.chain.token import NATIVE
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.processor import Processor

EGLD = 10**18
TOKEN = "USDC-c76f1f"
FUNCTIONS = (
    ESDT_TRANSFER,
    MULTI_TRANSFER,
    NFT_TRANSFER,
    "xo",
    "wrapEgld",
    "unwrapEgld",
    "addLiquidity",
    "",
    "relayedTx",
)
WORDS = (TOKEN, "EGLD-000000", "EGLD", "NOPE-123456", "lkmex", "xo", "wrapEgld", "swap", "exchange")

ARGUMENTS = st.one_of(
    st.sampled_from([word.encode() for word in WORDS]),
    st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\xff" * 8, b"\xff" * 33, b"\xff" * 3000]),
    st.sampled_from(["aggregator", "wrapper", "onedex", "user0", "user1", "user2", "self"]),
    st.binary(max_size=40),
)
CALLS = st.tuples(
    st.sampled_from(FUNCTIONS),
    st.lists(ARGUMENTS, max_size=9),
    st.sampled_from(["aggregator", "wrapper", "onedex", "user0", "user1", "user2", "self"]),
    st.integers(0, 2),
    st.sampled_from([0, 1, 10**12, 10**24]),
    st.sampled_from([0, 1, 199_999, 400_000, 2_000_000, 60_000_000]),
    st.booleans(),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=st.lists(CALLS, min_size=1, max_size=12))
def test_any_call_ends_in_a_status_and_conserves_egld(make_bench: Any, wallet: Any, calls: list[Any]) -> None:
    """Whatever the data, receiver, value and gas: the chain goes on, the call ends, the books balance."""
    bench = make_bench()
    for shard in range(3):
        bench.chain.give(wallet(shard).public, NATIVE, EGLD)
        bench.chain.give(wallet(shard).public, TOKEN, 10**7)
    bench.rounds(bench.here + bench.hop)
    sent = []
    for function, arguments, to, shard, value, gas, relayed in calls:
        places = _places(bench, wallet, shard)
        raw = [places[item] if isinstance(item, str) else item for item in arguments]
        data = "@".join([function, *(item.hex() for item in raw)]).encode()
        limit = 100_000 + 1500 * len(data) + gas
        tx = bench.tx(wallet(shard), places[to], value, data, gas_limit=limit, relayed=relayed)
        try:
            sent.append(bench.chain.submit(tx))
        except Refused:
            continue
        bench.rounds(bench.here)
    bench.rounds(4 * bench.hop)
    assert all(bench.status(tx_hash)[0] in ("success", "fail") for tx_hash in sent)
    assert bench.held() + bench.fees() == bench.initial + 3 * EGLD


def _places(bench: Any, wallet: Any, shard: int) -> dict[str, bytes]:
    at = bench.chain.market.addresses
    users = {f"user{number}": wallet(number, 1).public for number in range(3)}
    return {
        "aggregator": at.aggregator,
        "wrapper": at.wrapper,
        "onedex": at.onedex,
        "self": wallet(shard).public,
    } | users


def test_a_defect_costs_one_transaction_and_not_the_chain(make_bench: Any, wallet: Any, monkeypatch: Any) -> None:
    """When executing a transaction raises, it alone is not executed; everything else is, once."""
    bench = make_bench()
    bench.give(wallet(0))
    sent = [bench.chain.submit(bench.tx(wallet(0), wallet(0, 1).public, 5 + n, nonce=n)) for n in range(3)]
    execute = Processor.execute_new

    def faulty(self: Processor, tx_hash: bytes, tx: Any) -> bool:
        done = execute(self, tx_hash, tx)
        if tx_hash == sent[2]:
            raise RuntimeError("a defect")
        return done

    monkeypatch.setattr(Processor, "execute_new", faulty)
    bench.rounds(2)
    assert [bench.status(tx_hash)[0] for tx_hash in sent[:2]] == ["success", "success"]
    assert bench.chain.index.find(sent[2]) is None or bench.status(sent[2]) == ("fail", "not executable in block")
    assert bench.balance(wallet(0, 1)) == 11 and bench.chain.account(wallet(0).public).nonce == 2
