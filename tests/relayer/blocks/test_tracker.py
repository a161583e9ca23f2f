"""Transaction status: every order of saves, finalities and reverts against a small model."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.relayer.blocks.chains import EARLY_FINALITY_SECONDS, MAX_EARLY, MAX_HELD_PER_SHARD
from millrace.relayer.blocks.facts import AccountFact, BlockFacts, TxFact, join, judge
from millrace.relayer.blocks.tracker import PENDING_SECONDS, Tracker

TX = b"\x07" * 32


def block(shard: int, nonce: int, *facts: TxFact, prev: bytes = b"", fork: int = 0) -> BlockFacts:
    """A block whose hash says shard, nonce and fork."""
    previous = prev or bytes((shard, nonce - 1, 0))
    return BlockFacts(shard, bytes((shard, nonce, fork)), previous, nonce, nonce * 6000, facts)


def fact(**fields: Any) -> TxFact:
    """A fact about the one transaction."""
    return TxFact(TX, **fields)


SOURCE = fact(included=True, is_call=True, fee=5)
DESTINATION = fact(executed=True, is_call=True, ran_ok=True, results_out=frozenset({b"r"}))
CALLBACK = fact(results_in=frozenset({b"r"}), completed=True)


def statuses(releases: list[Any]) -> list[str]:
    return [outcome.status for release in releases for outcome in release.outcomes]


def play(events: tuple[tuple[str, BlockFacts], ...]) -> list[str]:
    """Feed saves and finalities in an order; the statuses that came out."""
    tracker = Tracker()
    releases = []
    for number, (kind, item) in enumerate(events):
        if kind == "save":
            releases.append(tracker.save(item, number, 0.0))
        else:
            releases.append(tracker.finalise(item.shard, item.block_hash, 0.0))
    return statuses(releases)


def test_every_order_of_a_cross_shard_call() -> None:
    """Three shards, six events, 720 orders: one success each, and only when all three blocks are final."""
    blocks = [block(0, 1, SOURCE), block(1, 1, DESTINATION), block(2, 1, CALLBACK)]
    events = [(kind, item) for item in blocks for kind in ("save", "final")]
    for order in itertools.permutations(events):
        assert play(order) == ["success"]
        last = next(at for at in range(6, 0, -1) if play(order[:at]) == [])
        done = {id(item) for kind, item in order[: last + 1] if kind == "save"} & {
            id(item) for kind, item in order[: last + 1] if kind == "final"
        }
        # the destination's words alone end nothing; a completed chain of calls does
        assert id(blocks[1]) in done and id(blocks[2]) in done


def test_failure_anywhere_wins_once() -> None:
    """A failure at the source or the destination ends the transaction, in whatever order, exactly once."""
    for failing in (0, 1):
        facts = [SOURCE, DESTINATION]
        facts[failing] = fact(included=failing == 0, executed=failing == 1, failed="execution failed: x")
        blocks = [block(shard, 1, item) for shard, item in enumerate(facts)]
        events = [(kind, item) for item in blocks for kind in ("save", "final")]
        for order in itertools.permutations(events):
            assert play(order) == ["fail"]


def test_nothing_before_finality() -> None:
    """A saved block says nothing until it is final."""
    tracker = Tracker()
    plain = fact(included=True, executed=True)
    assert tracker.save(block(0, 1, plain), 1, 0.0).outcomes == ()
    (outcome,) = tracker.finalise(0, bytes((0, 1, 0)), 0.0).outcomes
    assert (outcome.status, outcome.tx_hash) == ("success", TX)


def test_finality_covers_earlier_blocks() -> None:
    """A final block makes its ancestors final, oldest first, and voids what forked from them."""
    tracker = Tracker()
    failed = fact(included=True, failed="execution failed")
    good = fact(included=True, executed=True)
    tracker.save(block(0, 1, good), 1, 0.0)
    tracker.save(block(0, 2, failed, fork=9), 2, 0.0)
    tracker.save(block(0, 2), 3, 0.0)
    release = tracker.finalise(0, bytes((0, 2, 0)), 0.0)
    assert [item.nonce for item in release.blocks] == [1, 2]
    assert statuses([release]) == ["success"]
    assert tracker.sizes["held_blocks"] == 0, "a fork of the final height would be read again after each restart"
    assert tracker.finalise(0, bytes((0, 2, 9)), 0.0).outcomes == ()
    assert tracker.low_water is None


def test_blocks_that_become_final_together_speak_in_their_order() -> None:
    """The oldest block is told first, of two failures the first one counts, and the lag is that of the newest."""
    tracker = Tracker()
    other = TxFact(b"\x08" * 32, included=True, executed=True)
    tracker.save(block(0, 1, fact(included=True), other), 1, 10.0)
    tracker.save(block(0, 2, fact(failed="first")), 2, 20.0)
    tracker.save(block(0, 3, fact(failed="second")), 3, 30.0)
    release = tracker.finalise(0, bytes((0, 3, 0)), 40.0)
    assert [(item.tx_hash, item.reason) for item in release.outcomes] == [(other.tx_hash, ""), (TX, "first")]
    assert release.saved_at == 30.0


def test_both_hashes_are_known_whichever_block_told_them() -> None:
    """The hash the sender computed is told whether the first or the last block has the transaction itself."""
    named, ended = fact(executed=True, is_call=True, client_hash=b"client"), fact(completed=True)
    for first, second in ((named, ended), (ended, named)):
        tracker = Tracker()
        for shard, item in enumerate((first, second)):
            tracker.save(block(shard, 1, item), shard, 0.0)
            release = tracker.finalise(shard, bytes((shard, 1, 0)), 0.0)
        assert [outcome.client_hash for outcome in release.outcomes] == [b"client"]


HOP = fact(failed="execution failed: no", results_in=frozenset({b"r"}))
"""A step that failed in a block that does not hold the transaction itself."""
HELD = fact(included=True, executed=True, is_call=True, client_hash=b"client", sdk_hash=b"sdk")


def heard(tracker: Tracker, shard: int, item: TxFact, now: float = 0.0, nonce: int = 1) -> Any:
    """A block with one fact is saved and final."""
    tracker.save(block(shard, nonce, item), 10 * shard + nonce, now)
    return tracker.finalise(shard, bytes((shard, nonce, 0)), now)


def test_the_senders_hashes_are_told_once_a_block_has_them() -> None:
    """A failure that is heard before any block that holds the transaction is told at once, and by the hashes its sender
    knows when such a block comes: once, and as the same end."""
    tracker = Tracker()
    (first,) = heard(tracker, 2, HOP).outcomes
    assert (first.status, first.client_hash) == ("fail", b"") and tracker.low_water == 21
    assert heard(tracker, 0, HOP).named == (), "this one does not hold it either"
    release = heard(tracker, 1, HELD)
    (named,) = release.named
    assert release.outcomes == () and len(release.included) == 1
    assert (named.client_hash, named.sdk_hash) == (b"client", b"sdk")
    assert (named.status, named.reason, named.since) == ("fail", "execution failed: no", first.since)
    assert heard(tracker, 1, HELD, nonce=2).named == () and tracker.low_water is None


def test_what_has_no_other_hashes_is_named_by_none() -> None:
    """Of a transaction without a relayer there is nothing more to tell, and nothing of one whose block came first."""
    for facts in ([HOP, fact(included=True, executed=True)], [HELD, HOP], [fact(included=True), HOP, HELD]):
        tracker = Tracker()
        releases = [heard(tracker, shard, item) for shard, item in enumerate(facts)]
        assert [item.named for item in releases] == [()] * len(facts)
        assert statuses(releases) == ["fail"] and tracker.sizes["nameless"] == 0


def test_row_43_what_waits_for_its_hashes_is_bounded() -> None:
    """It is waited for no longer, and for no more of them, than for the end of a transaction; neither is a loss."""
    tracker = Tracker(capacity=2)
    hops = [TxFact(bytes((number,)) * 32, failed="execution failed") for number in range(4)]
    tracker.save(block(0, 1, *hops), 1, 0.0)
    tracker.finalise(0, bytes((0, 1, 0)), 0.0)
    assert tracker.sizes["nameless"] == 2
    tracker.save(block(0, 2), 2, PENDING_SECONDS - 1)
    assert tracker.low_water == 1
    tracker.finalise(0, bytes((0, 2, 0)), PENDING_SECONDS)
    assert tracker.sizes["nameless"] == 0 and tracker.low_water is None and tracker.forgotten == 0


def test_blocks_of_unknown_height_are_no_forks() -> None:
    """A header that cannot be read has no height: such a block stays until it is final itself."""
    tracker = Tracker()
    plain = [TxFact(bytes((number,)) * 32, included=True, executed=True) for number in range(3)]
    for number, item in enumerate(plain):
        tracker.save(BlockFacts(0, bytes((number,)), b"", 0, 0, (item,)), number, 0.0)
    for number, item in enumerate(plain):
        (outcome,) = tracker.finalise(0, bytes((number,)), 0.0).outcomes
        assert outcome.tx_hash == item.tx_hash


def test_revert_takes_back_what_was_not_released() -> None:
    """A reverted block counts for nothing, also when its finality came first; saved again it counts."""
    tracker = Tracker()
    item = block(0, 1, fact(included=True, failed="execution failed"))
    tracker.save(item, 1, 0.0)
    assert tracker.revert(0, item.block_hash)
    assert tracker.finalise(0, item.block_hash, 0.0).outcomes == ()
    assert tracker.revert(0, item.block_hash)
    assert tracker.save(item, 2, 0.0).outcomes == ()
    assert statuses([tracker.finalise(0, item.block_hash, 0.0)]) == ["fail"]
    assert not tracker.revert(0, item.block_hash), "a final block that is reverted is an alarm"
    assert tracker.chains.reverted_final == 1


def test_what_was_scheduled_unheard_is_not_waited_for() -> None:
    """A block that only confirms what one before the first event scheduled begins nothing, so nothing is lost later."""
    tracker = Tracker()
    item = block(0, 2, fact(is_confirmed=True))
    tracker.save(item, 1, 0.0)
    tracker.finalise(0, item.block_hash, 0.0)
    assert tracker.sizes["pending"] == 0 and tracker.low_water is None
    tracker.finalise(0, b"later", PENDING_SECONDS + 1)
    assert tracker.unheard == 0


def test_early_finality_is_kept_for_a_minute() -> None:
    """A finality whose block never comes is forgotten after 60 s."""
    tracker = Tracker()
    item = block(0, 1, fact(included=True, executed=True))
    tracker.finalise(0, item.block_hash, 0.0)
    assert tracker.save(item, 1, EARLY_FINALITY_SECONDS).outcomes == ()
    assert tracker.sizes["early_finality"] == 0


def test_a_final_block_that_never_comes_is_noticed() -> None:
    """One between final blocks is lost after 60 s, whichever marks name it; what was before the first is not missed."""
    tracker = Tracker()
    for nonce in (5, 6, 8):
        item = block(0, nonce)
        tracker.save(item, nonce, 0.0)
        tracker.finalise(0, item.block_hash, 0.0)
    tracker.finalise(0, block(0, 7).block_hash, 0.0)
    tracker.finalise(1, block(1, 9).block_hash, EARLY_FINALITY_SECONDS - 1)
    assert tracker.forgotten == 0
    tracker.finalise(1, block(1, 10).block_hash, EARLY_FINALITY_SECONDS)
    assert tracker.forgotten == 1
    tracker.finalise(1, block(1, 11).block_hash, 3 * EARLY_FINALITY_SECONDS)
    assert tracker.forgotten == 1, "of a shard without blocks nothing is missed"


def test_low_water_is_the_oldest_event_still_needed() -> None:
    """After a restart reading begins at the oldest block not final or transaction not ended."""
    tracker = Tracker()
    tracker.save(block(0, 1, SOURCE), 10, 0.0)
    assert tracker.low_water == 10
    tracker.finalise(0, bytes((0, 1, 0)), 0.0)
    assert tracker.low_water == 10, "its destination has not spoken"
    tracker.save(block(1, 1, DESTINATION), 12, 0.0)
    tracker.save(block(1, 1, DESTINATION), 13, 0.0)
    tracker.finalise(1, bytes((1, 1, 0)), 0.0)
    assert tracker.low_water == 10, "what the first block said is still needed when the second has spoken"
    tracker.save(block(2, 1, CALLBACK), 14, 0.0)
    tracker.save(block(2, 1), 15, 0.0)
    assert tracker.low_water == 10
    tracker.finalise(2, bytes((2, 1, 0)), 0.0)
    tracker.save(block(2, 2, CALLBACK), 16, 0.0)
    tracker.finalise(2, bytes((2, 2, 0)), 0.0)
    assert tracker.low_water is None


def test_low_water_when_a_later_block_is_final_first() -> None:
    """Shards become final in any order: what is needed reaches back to the oldest block, whichever was final first."""
    tracker = Tracker()
    other = TxFact(b"\x08" * 32, included=True, is_call=True)
    tracker.save(block(0, 1, SOURCE), 10, 0.0)
    tracker.save(block(1, 1, other), 20, 0.0)
    tracker.finalise(1, bytes((1, 1, 0)), 0.0)
    tracker.finalise(0, bytes((0, 1, 0)), 0.0)
    assert tracker.low_water == 10


def test_low_water_of_a_disputed_block_is_its_first_telling() -> None:
    """Both tellings of a block are needed after a restart, or the second alone would be believed."""
    tracker = Tracker()
    tracker.save(block(0, 1, SOURCE), 10, 0.0)
    tracker.save(block(0, 1), 11, 0.0)
    assert tracker.low_water == 10


def test_a_fee_is_not_known_while_results_are_under_way() -> None:
    """With results still to be executed elsewhere a block shows only the first part of a fee."""
    tracker = Tracker()
    partly = fact(included=True, executed=True, fee=5, results_out=frozenset({b"r"}))
    whole = TxFact(b"\x08" * 32, included=True, executed=True, fee=7)
    tracker.save(block(0, 1, partly, whole), 1, 0.0)
    assert [item.fee for item in tracker.finalise(0, bytes((0, 1, 0)), 0.0).included] == [None, 7]


FACTS = st.builds(
    TxFact,
    st.just(TX),
    failed=st.sampled_from(["", "", "", "execution failed"]),
    included=st.booleans(),
    executed=st.booleans(),
    is_call=st.booleans(),
    completed=st.booleans(),
    ran_ok=st.booleans(),
    results_out=st.frozensets(st.sampled_from([b"1", b"2"])),
    results_in=st.frozensets(st.sampled_from([b"1", b"2"])),
)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["save", "final", "revert"])), max_size=24)


@settings(max_examples=300, deadline=None)
@given(st.lists(FACTS, min_size=6, max_size=6), STEPS)
def test_any_order_against_the_model(facts: list[TxFact], steps: list[tuple[int, str]]) -> None:
    """In any order of save, final and revert the status is what the final saved blocks together say, once."""
    # Six blocks in six shards: ancestry plays no part, so a block is final exactly when its own mark stands.
    blocks = [block(shard, 1, item) for shard, item in enumerate(facts)]
    tracker = Tracker()
    saved: set[int] = set()
    marked: set[int] = set()
    counted: set[int] = set()
    told: list[str] = []
    expected: list[str] = []
    for number, (at, kind) in enumerate(steps):
        item = blocks[at]
        if kind == "save":
            told += statuses([tracker.save(item, number, 0.0)])
            saved.add(at)
        elif kind == "final":
            told += statuses([tracker.finalise(item.shard, item.block_hash, 0.0)])
            marked.add(at)
        else:
            tracker.revert(item.shard, item.block_hash)
            saved.discard(at)
            marked.discard(at)
        counted |= saved & marked
        if counted and not expected:
            whole = TxFact(TX)
            for each in counted:
                whole = join(whole, facts[each])
            status = judge(whole)
            expected = [status] if status else []
        assert told == expected


def test_tables_are_bounded() -> None:
    """Beyond its capacity the oldest unfinished transaction is forgotten and counted."""
    tracker = Tracker(capacity=2)
    facts = [TxFact(bytes((number,)) * 32, included=True) for number in range(3)]
    tracker.save(block(0, 1, *facts), 1, 0.0)
    tracker.finalise(0, bytes((0, 1, 0)), 0.0)
    assert tracker.sizes["pending"] == 2 and tracker.forgotten == 1 and tracker.unheard == 0
    tracker.save(block(0, 2, TxFact(b"\x09" * 32, included=True)), 2, 10_000.0)
    assert tracker.sizes["pending"] == 0, "what has no end for long is forgotten too"
    tracker.finalise(0, bytes((0, 2, 0)), 10_000.0)
    tracker.save(block(0, 3), 3, 10_000.0 + PENDING_SECONDS - 1)
    assert tracker.sizes["pending"] == 1, "and not before"
    tracker.save(block(0, 4), 4, 10_000.0 + PENDING_SECONDS)
    assert tracker.sizes["pending"] == 0


def test_row_43_what_waits_for_its_other_half_is_bounded() -> None:
    """Blocks never final, finalities without a block and transactions that ended are forgotten, the oldest first."""
    tracker = Tracker(capacity=2)
    for number in range(MAX_EARLY + 5):
        tracker.finalise(0, number.to_bytes(4, "big"), 0.0)
    assert tracker.sizes["early_finality"] == MAX_EARLY
    for number in range(MAX_HELD_PER_SHARD + 5):
        tracker.save(BlockFacts(1, number.to_bytes(4, "big"), b"", number, 0), number, 0.0)
    assert tracker.sizes["held_blocks"] == MAX_HELD_PER_SHARD and tracker.forgotten == 5
    assert tracker.low_water == 5, "the oldest are those that are forgotten"
    ended = [TxFact(bytes((number,)) * 32, included=True, executed=True) for number in range(4)]
    tracker.save(block(2, 1, *ended), 1, 0.0)
    tracker.finalise(2, bytes((2, 1, 0)), 0.0)
    assert tracker.sizes["ended"] == 2


def test_row_41_accounts_nodes_tell_differently() -> None:
    """Of two nodes' words on one block only the accounts that both tell alike are believed."""
    same, lie = AccountFact(b"a", 1, 10, {}), AccountFact(b"b", 1, 10**30, {})
    first = BlockFacts(0, b"h", b"", 1, 0, accounts=(same, lie))
    second = BlockFacts(0, b"h", b"", 1, 0, accounts=(same, AccountFact(b"b", 1, 10, {})))
    tracker = Tracker()
    tracker.save(first, 1, 0.0)
    tracker.save(second, 2, 0.0)
    (told,) = tracker.finalise(0, b"h", 0.0).blocks
    assert told.accounts == (same,) and tracker.disputed == 1


class Counted(bytes):
    """A public key, counting how often any is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = bytes.__hash__


def test_row_41_a_dispute_of_many_accounts() -> None:
    """Nodes that disagree on a large block cost no more than a look or two at each account."""

    def many() -> list[AccountFact]:
        return [AccountFact(Counted(number.to_bytes(4, "big")), 1, 10, {}) for number in range(1_000)]

    tracker = Tracker()
    tracker.save(BlockFacts(0, b"h", b"", 1, 0, accounts=(*many(), AccountFact(b"lie", 1, 10, {}))), 1, 0.0)
    tracker.save(BlockFacts(0, b"h", b"", 1, 0, accounts=tuple(reversed(many()))), 2, 0.0)
    (told,) = tracker.finalise(0, b"h", 0.0).blocks
    assert Counted.compared <= 10_000
    assert told.accounts == tuple(many())


PLAIN = fact(included=True, executed=True)


def test_row_41_two_observers_that_disagree() -> None:
    """Of a block told in two ways only what both tell is believed; the rest is told to nobody, and counted."""
    other = TxFact(b"\x08" * 32, included=True, executed=True)
    lie = fact(included=True, executed=True, failed="execution failed: made up")
    for first, second in (((PLAIN, other), (lie, other)), ((lie, other), (PLAIN, other)), ((PLAIN, other), (other,))):
        tracker = Tracker()
        tracker.save(block(0, 1, *first), 1, 0.0)
        tracker.save(block(0, 1, *second), 2, 0.0)
        release = tracker.finalise(0, bytes((0, 1, 0)), 0.0)
        assert [(item.tx_hash, item.status) for item in release.outcomes] == [(other.tx_hash, "success")]
        assert [item.tx_hash for item in release.included] == [other.tx_hash]
        assert tracker.disputed == 1


def test_row_41_observers_that_agree() -> None:
    """The same block told twice is no dispute, before or after it is final; told otherwise too late it is counted."""
    tracker = Tracker()
    for _ in range(2):
        tracker.save(block(0, 1, PLAIN), 1, 0.0)
    assert statuses([tracker.finalise(0, bytes((0, 1, 0)), 0.0)]) == ["success"]
    tracker.save(block(0, 1, PLAIN), 2, 0.0)
    assert tracker.disputed == 0
    assert tracker.save(block(0, 1), 3, 0.0).outcomes == ()
    assert tracker.disputed == 1


def test_row_41_two_final_blocks_of_one_height() -> None:
    """A second block called final at a height is an alarm, and what it says is told to nobody."""
    tracker = Tracker()
    tracker.save(block(0, 1), 1, 0.0)
    tracker.finalise(0, bytes((0, 1, 0)), 0.0)
    late, early = block(0, 1, PLAIN, fork=5), block(0, 1, PLAIN, fork=6)
    tracker.save(late, 2, 0.0)
    assert tracker.finalise(0, late.block_hash, 0.0).outcomes == ()
    tracker.finalise(0, early.block_hash, 0.0)
    assert tracker.save(early, 3, 0.0).outcomes == ()
    assert tracker.conflicting_final == 2


def test_row_41_duplicate_nonce_alarm() -> None:
    """Two live blocks of one height are counted; one that takes the place of a reverted block is not."""
    tracker = Tracker()
    tracker.save(block(0, 1), 1, 0.0)
    tracker.revert(0, bytes((0, 1, 0)))
    tracker.save(block(0, 1, fork=1), 2, 0.0)
    assert tracker.chains.forks == 0
    tracker.save(block(0, 1, fork=2), 3, 0.0)
    tracker.save(block(1, 1), 4, 0.0)
    assert tracker.chains.forks == 1
