"""What the contract charges for a referral is read from the local chain's contract by calls that it refuses."""

from __future__ import annotations

import time

from millrace.aggregator.referrals import Referrals
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.simulation import Simulations
from millrace.chain.address import encode
from millrace.dex.vault import Referral
from millrace.localnet.chain.machine import Chain
from millrace.localnet.contracts.aggregator import set_referral
from millrace.localnet.edges.api import Api
from millrace.localnet.edges.control import Control
from millrace.localnet.market.market import WRAPPED
from millrace.localnet.settings import LocalnetSettings
from millrace.runtime.http import HttpServer
from waiting import until

SENDER = b"\x07" * 32
EGLD = 10**18


async def test_fees_are_what_the_contract_has_on_file() -> None:
    """Both fees of an active referral, nothing of one switched off or unknown; a change is read and handed on."""
    settings = LocalnetSettings(notifier_url="", gossip=False, pools=30, tokens=20)
    chain = Chain(settings, genesis_ms=time.time_ns() // 1_000_000)
    chain.give(SENDER, "EGLD", EGLD)
    for _ in range(8):
        chain.advance_round()
    server = HttpServer(Api(chain, Control(chain, [], lambda _: None), list).app())
    port = await server.start("127.0.0.1", 0)
    ours = AggregatorSettings(
        gateway=f"http://127.0.0.1:{port}",
        chain_id="local",
        referral_sender=encode(SENDER),
        referral_seconds=1.0,
        referrals={"1": (10, 20), "2": (10, 100)},
    )
    adopted: list[AggregatorSettings] = []
    simulations = Simulations(ours)
    referrals = Referrals(ours, simulations, adopted.append)

    def fees() -> dict[int, object]:
        known = [referrals.of(number) for number in (1, 2, 3)]
        return {answer.referral_id: answer.fee_bps for answer in known if answer.source == "contract"}

    referrals.note(3, WRAPPED)
    await until(lambda: len(fees()) == 3)
    assert fees() == {1: 30, 2: 0, 3: 0}
    assert adopted[-1].referrals == {"1": (10, 20), "2": (0, 0)}, "a division that fits is kept"
    set_referral(chain.shards[chain.home].state, chain.market.addresses.aggregator, Referral(3, 5, 250))
    await until(lambda: fees()[3] == 255)
    assert adopted[-1].referral_bps(3) == (0, 255)
    await referrals.close()
    await simulations.close()
    await server.stop()
