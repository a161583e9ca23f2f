"""Simulations: what a transaction would come to, and nothing of it left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from millrace.chain.call import encode
from millrace.chain.transaction import chain_hash
from millrace.localnet.chain.admission import Refused

EGLD = 10**18


def test_what_is_simulated_is_what_happens_then(make_bench: Any, wallet: Callable[..., Any]) -> None:
    """Within a shard and across, what is said before is what comes of it, and saying it changes nothing."""
    bench = make_bench()
    home = bench.chain.home
    aggregator = bench.chain.market.addresses.aggregator
    for shard in range(3):
        bench.give(wallet(shard))
        for receiver, value, data, gas in (
            (wallet((shard + 1) % 3, 1).public, 5, b"", 50_000),
            (wallet(shard, 1).public, 10**24, b"", 50_000),
            (aggregator, 7, encode("xo", b"\x01"), 10_000_000),
            (aggregator, 0, encode("nothing"), 10_000_000),
        ):
            tx = bench.tx(wallet(shard), receiver, value, data, gas_limit=gas + 1500 * len(data))
            before = bench.state()
            outcomes = bench.chain.simulate(tx, checks_signatures=True)
            assert bench.state() == before
            said = "fail" if any(outcome.status == "fail" for outcome in outcomes) else "success"
            crosses = (data and shard != home) or receiver == wallet((shard + 1) % 3, 1).public
            assert len(outcomes) == (2 if crosses else 1)
            bench.chain.submit(tx)
            bench.rounds(bench.here + 3 * bench.hop)
            assert bench.status(chain_hash(tx))[0] == said


def test_before_its_relayer_has_signed(make_bench: Any, wallet: Callable[..., Any]) -> None:
    """Without a look at signatures it may lack its relayer's; a nonce that is not its turn does not run."""
    bench = make_bench()
    whole = bench.tx(wallet(0), wallet(0, 1).public, relayed=True)
    tx = msgspec.structs.replace(whole, relayer_signature=b"")
    (outcome,) = bench.chain.simulate(tx, checks_signatures=False)
    assert outcome.status == "success" and tx.relayer in outcome.content.fee_only
    with pytest.raises(Refused, match="invalid relayed transaction"):
        bench.chain.simulate(tx, checks_signatures=True)
    (later,) = bench.chain.simulate(msgspec.structs.replace(tx, nonce=1), checks_signatures=False)
    assert (later.status, later.reason) == ("fail", "transaction is not executable")
