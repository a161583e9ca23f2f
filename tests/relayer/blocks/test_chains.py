"""Which blocks count: what comes late, twice, for unknown headers, or contradicts what came before."""

from __future__ import annotations

from typing import Any

import msgspec

from millrace.relayer.blocks.chains import (
    EARLY_FINALITY_SECONDS,
    MAX_BEHIND,
    MAX_EARLY,
    MAX_HELD_PER_SHARD,
    Chains,
    Counted,
)
from millrace.relayer.blocks.facts import AccountFact, BlockFacts, BlockHeader, TxFact, Unexecutable

TX, OTHER = b"\x07" * 32, b"\x08" * 32
RAN = TxFact(TX, included=True, executed=True)


def name(nonce: int, fork: int = 0, shard: int = 0) -> bytes:
    return bytes((shard,)) + nonce.to_bytes(4, "big") + bytes((fork,))


def proposal(nonce: int, *lists: int, fork: int = 0, shard: int = 0, **fields: Any) -> BlockFacts:
    """A header on top of the one below it that brings the results of those heights."""
    header = BlockHeader(nonce, nonce + 5, 3, 2, "ab", "0", "0")
    listed = tuple(name(item, shard=shard) for item in lists)
    return BlockFacts(
        shard, name(nonce, fork, shard), name(nonce - 1, shard=shard), nonce, nonce * 600, header=header,
        proposes=True, lists=listed, **fields,
    )  # fmt: skip


def result(nonce: int, *facts: TxFact, by: int, fork: int = 0, shard: int = 0, **fields: Any) -> BlockFacts:
    """The result of a block, brought by the header at height `by`."""
    header = BlockHeader(nonce, nonce + 5, 3, 9, "", "70", "7")
    settled = fields.pop("settled", frozenset(fact.tx_hash for fact in facts))
    return BlockFacts(
        shard, name(nonce, shard=shard), b"", nonce, nonce * 600, facts, header=header,
        carrier=by, carrier_hash=name(by, fork, shard), settled=settled, **fields,
    )  # fmt: skip


def missed(tx_hash: bytes = OTHER) -> Unexecutable:
    return Unexecutable(tx_hash, b"", 600)


def play(*events: BlockFacts | bytes, chains: Chains | None = None) -> tuple[Chains, list[Counted]]:
    """Proposals, results and final hashes in an order."""
    chains = chains or Chains()
    counted = []
    for number, event in enumerate(events, 1):
        if isinstance(event, bytes):
            counted.append(chains.finalise(event[0], event, 0.0))
        elif event.carrier:
            counted.append(chains.execute(event, number, float(number)))
        else:
            counted.append(chains.save(event, number, 0.0))
    return chains, counted


def heights(counted: list[Counted]) -> list[int]:
    return [block.nonce for item in counted for block in item.blocks]


def test_a_result_has_the_numbers_of_its_proposal() -> None:
    """Transactions, leader and round are the proposal's, fees the execution's; without a proposal there are none."""
    _, counted = play(proposal(1), proposal(2, 1), result(1, RAN, by=2), name(2))
    (block,) = counted[-1].blocks
    assert block.header == BlockHeader(1, 6, 3, 2, "ab", "70", "7") and counted[-1].saved_at == 3.0
    _, counted = play(proposal(2, 1), result(1, RAN, by=2), name(2))
    (block,) = counted[-1].blocks
    assert block.header is None and block.transactions == (RAN,)


def test_a_final_proposal_is_not_executed() -> None:
    """A block's own finality says nothing of its execution; that of the header that brings the result does."""
    _, counted = play(proposal(1), name(1), proposal(2, 1), result(1, RAN, by=2))
    assert heights(counted) == []
    _, counted = play(proposal(1), name(1), proposal(2, 1), result(1, RAN, by=2), name(2))
    assert heights(counted) == [1]


def test_what_was_proposed_and_left_out() -> None:
    """It is told with the later of proposal and result, once; of a result that may lack something nothing is."""
    whole = (proposal(1, sent=frozenset({TX, OTHER})), proposal(2, 1), result(1, RAN, by=2), name(2), name(1))
    for order in ((0, 1, 2, 3), (1, 2, 3, 0), (3, 2, 1, 0), (1, 3, 0, 2)):
        _, counted = play(*(whole[at] for at in order), whole[0], whole[2])
        assert [item.tx_hash for each in counted for item in each.unexecutable] == [OTHER]
    doubtful = msgspec.structs.replace(whole[2], settled=None)
    _, counted = play(*whole[:2], doubtful, name(2))
    assert heights(counted) == [1] and not any(item.unexecutable for item in counted)


def test_row_42_what_a_reverted_header_brought() -> None:
    """Its results count when another brings them; their accounts may be of an execution that never was."""
    account = AccountFact(b"a", 1, 10, {})
    chains, _ = play(
        proposal(1), proposal(2, 1, fork=1), result(1, RAN, by=2, fork=1, accounts=(account,), absent=frozenset({b"r"}))
    )
    assert chains.revert(0, name(2, 1))
    assert chains.oldest == 1
    _, counted = play(proposal(2, 1), name(2), chains=chains)
    (block,) = counted[-1].blocks
    assert block.transactions == (RAN,) and block.accounts == () and block.absent == {b"a", b"r"}
    _, counted = play(proposal(1), proposal(2, 1), result(1, RAN, by=2, accounts=(account,)), name(2))
    assert counted[-1].blocks[0].accounts == (account,)


def test_row_42_a_reverted_block_and_its_result() -> None:
    """A block that is rolled back loses its result; saved again it needs it again."""
    chains, _ = play(proposal(1), proposal(2, 1), result(1, RAN, by=2))
    assert chains.revert(0, name(2)) and chains.revert(0, name(1))
    assert chains.oldest is None
    _, counted = play(proposal(1), proposal(2, 1), name(2), chains=chains)
    assert heights(counted) == []
    _, counted = play(result(1, RAN, by=2), chains=chains)
    assert heights(counted) == [1]
    assert not chains.revert(0, name(1)) and not chains.revert(0, name(2)) and chains.reverted_final == 2


def test_row_41_results_that_are_told_differently() -> None:
    """What two nodes both say counts, but for accounts, which are as each node knew them; nothing was left out."""
    ahead = (AccountFact(b"a", 2, 10, {}),)
    chains, counted = play(
        proposal(1), proposal(2, 1), result(1, RAN, by=2), result(1, RAN, by=2, accounts=ahead), name(2)
    )
    assert heights(counted) == [1] and chains.disputed == 0
    lie = TxFact(TX, included=True, failed="made up")
    first = result(1, RAN, TxFact(OTHER, included=True), by=2)
    for second in (result(1, lie, by=2), result(1, by=2, unexecutable=(missed(TX), missed(OTHER)))):
        for order in ((first, second), (second, first)):
            sent = proposal(1, sent=frozenset({TX, OTHER}))
            chains, counted = play(sent, proposal(2, 1), *order, name(2))
            (block,) = counted[-1].blocks
            assert block.transactions == () and counted[-1].unexecutable == [] and chains.disputed == 1
    play(result(1, RAN, by=2), chains=chains)
    assert chains.disputed == 2, "too late to change anything"


def test_row_41_a_block_told_in_both_formats() -> None:
    """A block that proposes cannot also have been executed when it was made."""
    whole = BlockFacts(0, name(1), name(0), 1, 600, (RAN,))
    for first, second in ((proposal(1), whole), (whole, proposal(1))):
        chains, _ = play(first, second)
        assert chains.disputed == 1
    chains, counted = play(proposal(1), whole, name(1))
    assert heights(counted) == []


def test_row_41_results_of_blocks_that_are_not_final() -> None:
    """Of two blocks of a height only the final one's result counts, and a header that lists the other is an alarm."""
    chains, counted = play(proposal(1), name(1))
    other = msgspec.structs.replace(result(1, RAN, by=2), block_hash=name(1, 5))
    _, counted = play(other, chains=chains)
    assert chains.sizes["held_blocks"] == 1, "its place is taken"
    chains, counted = play(
        other, proposal(1), msgspec.structs.replace(proposal(2), lists=(name(1, 5),)), name(1), name(2)
    )
    assert heights(counted) == []


def test_row_41_a_header_lists_a_fork() -> None:
    """A final header that brings the result of a block beside another final one is counted, and not believed."""
    fork = msgspec.structs.replace(proposal(1), block_hash=name(1, 5))
    late = msgspec.structs.replace(proposal(2), lists=(name(1, 5),))
    other = msgspec.structs.replace(result(1, RAN, by=2), block_hash=name(1, 5))
    chains, counted = play(proposal(1), name(1), fork, late, name(2), other)
    assert heights(counted) == [] and chains.conflicting_final == 1


def test_results_of_another_shard_are_another_block() -> None:
    """A result counts in its own shard alone, whatever a header of another one lists."""
    foreign = msgspec.structs.replace(result(1, RAN, by=2), shard=1)
    _, counted = play(proposal(1), proposal(2, 1), foreign, name(2))
    assert heights(counted) == []


def test_finality_that_skips() -> None:
    """The parent of a final header is final when it comes, and what a final header lists, too."""
    _, counted = play(proposal(3, 2), name(3), proposal(2, 1), result(1, by=2), result(2, by=3), proposal(1))
    assert sorted(heights(counted)) == [1, 2]


def test_what_never_comes_to_its_end_is_forgotten() -> None:
    """A block whose result is lost, and a result whose header is lost, hold reading back for so many blocks only."""
    chains, _ = play(proposal(1), result(2, by=9, fork=3), name(1))
    for nonce in range(3, MAX_BEHIND + 2):
        assert chains.oldest == 1
        play(proposal(nonce, nonce - 1), result(nonce - 1, by=nonce), name(nonce), chains=chains)
        assert chains.sizes["held_blocks"] <= 4
    play(proposal(MAX_BEHIND + 2), name(MAX_BEHIND + 2), chains=chains)
    play(proposal(MAX_BEHIND + 3), name(MAX_BEHIND + 3), chains=chains)
    assert chains.forgotten >= 2 and chains.sizes["held_blocks"] <= 4


def test_row_43_proposals_without_finality_are_bounded() -> None:
    """However long nothing becomes final, so many blocks are held; the oldest are those that are forgotten."""
    chains = Chains()
    for nonce in range(1, MAX_HELD_PER_SHARD + 11):
        chains.save(proposal(nonce, nonce - 1), nonce, 0.0)
    assert chains.sizes["held_blocks"] == MAX_HELD_PER_SHARD
    assert (chains.forgotten, chains.oldest) == (10, 11)
    counted = chains.finalise(0, name(MAX_HELD_PER_SHARD + 10), 0.0)
    assert counted.blocks == [] and chains.sizes["early_finality"] == 1


def test_row_43_what_becomes_final_is_not_forgotten_meanwhile() -> None:
    """With all room taken, a header that lists the oldest block and one never heard of loses neither."""
    chains = Chains()
    oldest = msgspec.structs.replace(proposal(1), prev_hash=b"none")
    chains.save(oldest, 1, 0.0)
    chains.execute(result(1, RAN, by=MAX_HELD_PER_SHARD), 1, 0.0)
    for nonce in range(2, MAX_HELD_PER_SHARD):
        chains.save(msgspec.structs.replace(proposal(nonce), prev_hash=b"none"), nonce, 0.0)
    last = msgspec.structs.replace(proposal(MAX_HELD_PER_SHARD, 1, 2), lists=(name(1), b"unheard"))
    chains.save(last, MAX_HELD_PER_SHARD, 0.0)
    assert chains.sizes["held_blocks"] == MAX_HELD_PER_SHARD and chains.forgotten == 0
    counted = chains.finalise(0, last.block_hash, 0.0)
    assert [block.nonce for block in counted.blocks] == [1]
    assert chains.sizes["held_blocks"] <= MAX_HELD_PER_SHARD


def test_row_43_all_that_one_header_lists_is_bounded() -> None:
    """What a final header lists and nobody has heard of takes the room of the oldest, when all is gone through."""
    chains = Chains()
    for nonce in range(1, MAX_HELD_PER_SHARD):
        chains.save(msgspec.structs.replace(proposal(nonce), prev_hash=b"none"), nonce, 0.0)
    unheard = tuple(b"unheard %d" % number for number in range(100))
    last = msgspec.structs.replace(proposal(MAX_HELD_PER_SHARD), lists=unheard)
    play(last, last.block_hash, chains=chains)
    assert (chains.sizes["held_blocks"], chains.forgotten) == (MAX_HELD_PER_SHARD, 100)


def test_a_result_that_two_final_headers_bring() -> None:
    """It counts once, however often it is told or listed, and is not waited for again."""
    parts = (proposal(2, 1), name(2), result(1, RAN, by=2), result(1, RAN, by=2))
    chains, counted = play(*parts)
    assert heights(counted) == [1], "its proposal has not come"
    chains, counted = play(proposal(1), proposal(3, 1), name(3), chains=chains)
    assert heights(counted) == []
    assert chains.sizes["held_blocks"] == 2, "headers 2 and 3 wait for their own results"


def test_what_a_final_header_lists_is_needed_from_there_on() -> None:
    """A listed block of which nothing else has come is read again from the header that lists it."""
    chains, _ = play(proposal(1), proposal(3, 2), name(3), chains=Chains())
    assert chains.revert(0, name(1)) and chains.oldest == 2
    chains.execute(result(3, by=4), 20, 0.0)
    chains.save(proposal(4, 3), 21, 0.0)
    assert heights([chains.finalise(0, name(4), 0.0)]) == [3]
    assert chains.oldest == 2, "the result of block 2 is still to come"


def test_row_49_shards_that_there_are_not() -> None:
    """Marks and reverts of shards without a block leave nothing but marks, which are bounded and expire."""
    chains = Chains()
    for number in range(10_000):
        chains.finalise(number, b"h", 0.0)
        assert chains.revert(number, b"other")
    assert not any(chains.holds(number) for number in range(10_000))
    assert chains.sizes["early_finality"] == MAX_EARLY
    chains.expire(EARLY_FINALITY_SECONDS)
    assert chains.sizes["early_finality"] == 0


def test_a_long_chain_of_lists_ends_in_one_step() -> None:
    """Headers that hang together only by what they list become final without recursion."""
    chains = Chains()
    for nonce in range(1, MAX_HELD_PER_SHARD):
        chains.save(msgspec.structs.replace(proposal(nonce, nonce - 1), prev_hash=b"none"), nonce, 0.0)
    chains.finalise(0, name(MAX_HELD_PER_SHARD - 1), 0.0)
    _, counted = play(result(1, RAN, by=2), chains=chains)
    assert heights(counted) == [1]


def test_a_block_whose_proposal_was_never_heard_is_no_reason_to_read_again() -> None:
    """Started in the middle of a chain: the first header lists a block from before, which then holds nothing back."""
    chains = Chains()
    for nonce in range(11, 40):
        chains.save(proposal(nonce, nonce - 1), 3 * nonce, 0.0)
        chains.execute(result(nonce - 1, by=nonce), 3 * nonce + 1, 0.0)
        chains.finalise(0, name(nonce), 0.0)
    assert chains.oldest is not None and chains.oldest >= 3 * 38
