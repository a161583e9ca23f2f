"""How long a round is: who is believed, when somebody is to be asked again, and what follows from it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.shard import METACHAIN
from millrace.relayer.blocks.chains import HELD_SECONDS, MAX_HELD_PER_SHARD, Chains
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.rounds import DEFAULT_MS, FEWEST, LONGEST_MS, SHORTEST_MS, STEPS, Rounds

GENESIS = 1_700_000_000_000
CHANGE = 10
"""The first round of the new length."""


def began(number: int, before: int = 6_000, after: int = 600) -> int:
    """When a round began on a chain that changes its length in round `CHANGE`."""
    return GENESIS + before * min(number, CHANGE) + after * max(0, number - CHANGE)


def show(rounds: Rounds, *numbers: int, shard: int = 0, epoch: int = 1) -> None:
    for number in numbers:
        rounds.header(shard, number, epoch, began(number))


def test_who_is_believed() -> None:
    """A setting before all, then what headers show, then what the network says; without any word the default."""
    rounds = Rounds()
    assert (rounds.ms, rounds.source) == (DEFAULT_MS, "default")
    rounds.said(3_000)
    assert (rounds.ms, rounds.source) == (3_000, "network")
    show(rounds, 1, 2, 3, 4)
    assert (rounds.ms, rounds.source, rounds.is_contradicted) == (6_000, "blocks", True)
    rounds.said(6_000)
    assert (rounds.ms, rounds.source, rounds.is_contradicted) == (6_000, "network", False)
    fixed = Rounds(1_000)
    fixed.said(3_000)
    show(fixed, 1, 2, 3, 4)
    assert (fixed.ms, fixed.source, fixed.ms_at(0)) == (1_000, "setting", 1_000)


@pytest.mark.parametrize("shard", [0, METACHAIN])
def test_the_change_over(shard: int) -> None:
    """With the first steps behind the change the new length holds, and each block keeps the one of its time."""
    rounds = Rounds()
    doubts: list[int] = []
    rounds.on_doubt = lambda: doubts.append(rounds.ms)
    show(rounds, *range(1, CHANGE + 1), shard=shard)
    rounds.said(6_000)
    assert rounds.ms == 6_000 and doubts == []
    show(rounds, CHANGE + 1, CHANGE + 2, shard=shard)
    assert rounds.ms == 6_000, "one step more"
    show(rounds, CHANGE + 3, shard=shard)
    assert (rounds.ms, doubts) == (600, [600]), "the network is to be asked again, as it said something else"
    assert rounds.ms_at(began(CHANGE) - 1) == 6_000 and rounds.ms_at(began(CHANGE)) == 600
    rounds.said(600)
    assert rounds.source == "network"


def test_an_epoch_is_a_reason_to_ask() -> None:
    """Lengths change with epochs; each header that begins one is such a reason, the first of all is not."""
    rounds = Rounds()
    doubts: list[int] = []
    rounds.on_doubt = lambda: doubts.append(1)
    show(rounds, 1, 2, epoch=4)
    assert doubts == []
    show(rounds, 3, epoch=5)
    show(rounds, 4, epoch=5)
    assert doubts == [1]


def test_headers_that_show_nothing() -> None:
    """Rounds without a block are counted, copies and forks are not, and what spans the change shows no length."""
    rounds = Rounds()
    show(rounds, 1, 3, 3, 2, 6)
    rounds.header(0, 6, 1, began(6) + 1)  # one node's word of the same
    assert rounds.source == "default"
    show(rounds, 7)
    assert rounds.ms == 6_000
    other = Rounds()
    show(other, CHANGE - 2, CHANGE + 4, CHANGE + 7, CHANGE + 9)
    assert other.source == "default"
    show(other, CHANGE + 10)
    assert other.ms == 600


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**64 - 1)), max_size=30))
def test_whatever_headers_bear_a_length_is_possible(headers: list[tuple[int, int]]) -> None:
    """Times that go back, or leap, show nothing beyond what a round can be, and do not stop what comes later."""
    rounds = Rounds()
    for number, time_ms in headers:
        rounds.header(0, number, number, time_ms)
        assert rounds.source == "default" or SHORTEST_MS <= rounds.ms <= LONGEST_MS
    newest = max((time_ms for _, time_ms in headers), default=0)
    for number in range(STEPS + 2):
        rounds.header(0, 100 + number, 9, newest + 700 * (1 + number))
    assert rounds.ms == 700


@pytest.mark.parametrize("length", [-1, 0, SHORTEST_MS - 1, LONGEST_MS + 1, 2**64])
def test_no_length_of_a_round(length: int) -> None:
    """What cannot be one is refused, and what was known stays."""
    rounds = Rounds()
    rounds.said(6_000)
    with pytest.raises(ValueError, match="a round of"):
        rounds.said(length)
    assert rounds.ms == 6_000


@pytest.mark.parametrize(("length", "count"), [(60_000, 51), (6_000, 512), (600, 5_120), (300, 5_120), (10, 5_120)])
def test_row_43_what_is_held_is_a_time(length: int, count: int) -> None:
    """As long a time whatever the rounds, and never more blocks than there is memory for."""
    rounds = Rounds(length)
    assert rounds.count(HELD_SECONDS, MAX_HELD_PER_SHARD) == count
    assert rounds.count(0.0, 100) == FEWEST
    chains = Chains(rounds)
    for nonce in range(1, count + 11):
        chains.save(BlockFacts(0, b"%d" % nonce, b"%d" % (nonce - 1), nonce, 0, proposes=True), nonce, 0.0)
    assert chains.sizes["held_blocks"] == count and chains.forgotten == 10


def test_row_43_a_bound_that_shrinks() -> None:
    """When rounds turn out to be longer the surplus goes with the next block, the oldest first, and is counted."""
    rounds = Rounds()
    chains = Chains(rounds)
    block = BlockFacts(0, b"", b"", 0, 0, proposes=True)
    for nonce in range(1, 601):
        chains.save(msgspec.structs.replace(block, block_hash=b"%d" % nonce, nonce=nonce), nonce, 0.0)
    assert chains.sizes["held_blocks"] == 600
    rounds.said(6_000)
    chains.save(msgspec.structs.replace(block, block_hash=b"601", nonce=601), 601, 0.0)
    assert chains.sizes["held_blocks"] == 512 and (chains.forgotten, chains.oldest) == (89, 90)
