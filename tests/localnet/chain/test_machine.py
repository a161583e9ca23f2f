"""The chain as a whole: what goes in comes out once, in order, and the books balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.chain import outport
from millrace.chain.address import ESDT_SYSTEM_CONTRACT, decode
from millrace.chain.call import TokenPayment, encode, esdt_transfer, parse_transfer
from millrace.chain.fees import initially_paid_fee, processing_price
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.token import NATIVE
from millrace.localnet.chain.admission import Refused
from millrace.localnet.contracts.meter import first_load

EGLD = 10**18
TOKEN = "USDC-c76f1f"

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["egld", "token", "multi", "call", "nonsense", "broke", "swap", "round", "revert"]),
        st.integers(0, 2),  # sender's shard
        st.integers(0, 2),  # receiver's shard
        st.booleans(),  # relayed
        st.integers(0, 3 * 10**6),  # amount, gas or depth
    ),
    min_size=1,
    max_size=25,
)


def transaction(
    bench: Any, wallet: Callable[..., Any], kind: str, source: int, target: int, amount: int, **more: Any
) -> Any:
    """One transaction of a kind; `amount` also varies the gas, so that some have too little."""
    key, receiver = wallet(source), wallet(target, 1).public
    contract = bench.chain.market.addresses.aggregator
    data = {
        "token": esdt_transfer(TOKEN, amount),
        "call": encode("xo", b"\x01"),
        "nonsense": b"ESDTTransfer@zz",
        "swap": esdt_transfer(TOKEN, amount + 1, "xo", b"\x01"),
    }.get(kind, b"")
    if kind == "multi":
        to = contract if amount % 2 else receiver
        payments = [TokenPayment(TOKEN, 0, amount + 1), TokenPayment(NATIVE, 0, amount)]
        return bench.multi(key, to, payments, "xo", gas_limit=600_000 + 10 * amount, **more)
    gas = 100_000 + 1500 * len(data) + (10 * amount if data else 0)
    to = contract if kind in ("call", "swap") else receiver
    value = {"egld": amount, "broke": 10**24, "call": amount}.get(kind, 0)
    return bench.tx(key, to, value, data, gas_limit=gas, **more)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS, delay=st.integers(0, 3), first=st.booleans())
def test_egld_is_conserved_and_every_result_arrives_once(
    make_bench: Any, wallet: Any, actions: list[Any], delay: int, first: bool
) -> None:
    """Accounts and collected fees always sum up to what was there, and what left a shard arrives once elsewhere."""
    bench = make_bench(finality_rounds=delay, finalized_first=first)
    for shard in range(3):
        bench.chain.give(wallet(shard).public, NATIVE, EGLD)
        bench.chain.give(wallet(shard).public, TOKEN, 10**7)
    bench.rounds(bench.here + bench.hop + 4 * delay)
    waiting: Counter[bytes] = Counter()
    for kind, source, target, relayed, amount in actions:
        if kind == "round":
            bench.rounds()
        elif kind == "revert":
            bench.revert(source, 1 + amount % 2)
        else:
            nonce = bench.chain.virtual_nonce(wallet(source).public) + waiting[source]
            try:
                bench.chain.submit(
                    transaction(bench, wallet, kind, source, target, amount, relayed=relayed, nonce=nonce)
                )
            except Refused:
                continue
            waiting[source] += 1
            bench.rounds()
            waiting[source] = 0
    bench.rounds(bench.here + 5 * bench.hop + 6 * delay)
    assert bench.held() + bench.fees() == bench.initial + 3 * EGLD
    left, arrived = _travel([told for block in bench.standing() for told in bench.told_by(block)])
    assert left == arrived
    assert not left or max(left.values()) == 1


def _travel(blocks: list[pb.OutportBlock]) -> tuple[Counter[bytes], Counter[bytes]]:
    """Hashes in miniblocks between shards: as their senders and as their receivers tell them."""
    left: Counter[bytes] = Counter()
    arrived: Counter[bytes] = Counter()
    for block in blocks:
        for mini in block.blockData.body.miniBlocks:
            if mini.senderShardID != mini.receiverShardID:
                (left if mini.senderShardID == block.shardID else arrived).update(mini.txHashes)
    return left, arrived


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS, depth=st.integers(1, 4))
def test_a_revert_restores_everything(make_bench: Any, wallet: Any, actions: list[Any], depth: int) -> None:
    """Ledger, mempool and statuses are as before the blocks taken back, and the same blocks' work is done again."""
    bench = make_bench(finality_rounds=12)
    for shard in range(3):
        bench.chain.give(wallet(shard).public, NATIVE, EGLD)
        bench.chain.give(wallet(shard).public, TOKEN, 10**7)
    bench.rounds(40)
    sent = []
    for kind, source, target, relayed, amount in actions[:6]:
        if kind in ("round", "revert"):
            continue
        try:
            sent.append(
                bench.chain.submit(
                    transaction(
                        bench, wallet, kind, source, target, amount, relayed=relayed, nonce=_next(bench, wallet, source)
                    )
                )
            )
        except Refused:
            continue
    before, mempools = bench.state(), [len(shard.mempool) for shard in bench.chain.shards.values()]
    bench.rounds(depth)
    for shard in range(3):
        reverted = bench.chain.take_back(shard, depth)
        assert [event.topic for event in reverted] == [outport.REVERT_INDEXED_BLOCK] * depth
    assert bench.state() == before
    assert [len(shard.mempool) for shard in bench.chain.shards.values()] == mempools
    assert all(bench.status(tx_hash) == ("pending", "") for tx_hash in sent)
    bench.rounds(70)
    assert all(bench.status(tx_hash)[0] in ("success", "fail") for tx_hash in sent)


def _next(bench: Any, wallet: Any, shard: int) -> int:
    nonce = int(bench.chain.account(wallet(shard).public).nonce)
    waiting = bench.chain.shards[shard].mempool
    taken = waiting._by_sender.get(wallet(shard).public, {})
    while nonce in taken:
        nonce += 1
    return nonce


def test_blocks_are_linked_and_new_ones_differ_after_a_revert(make_bench: Any) -> None:
    """Each header names its parent's hash; after a revert the same nonce comes again under another hash."""
    bench = make_bench(finality_rounds=5)
    bench.rounds(4)
    first = {block.nonce: block.hash for block in bench.chain.shards[0].blocks}
    bench.chain.take_back(0, 2)
    bench.rounds(2)
    second = {block.nonce: block.hash for block in bench.chain.shards[0].blocks}
    assert second[2] == first[2] and second[3] != first[3] and second[4] != first[4]
    blocks = bench.saved(shard=0)
    for block in blocks[1:]:
        header = read_header(block.blockData)
        assert header is not None
        assert header.prev_hash == first[header.nonce - 1] or header.prev_hash in second.values()


def test_final_blocks_stay(bench: Any) -> None:
    """What is final cannot be taken back."""
    bench.rounds(3)
    with pytest.raises(ValueError, match="not final"):
        bench.chain.take_back(0, 1)


def test_the_same_seed_gives_the_same_chain(make_bench: Any, wallet: Any) -> None:
    """Two chains with the same settings and inputs send the same bytes, traders included."""
    benches = [make_bench(traders_per_second=5.0) for _ in range(2)]
    for bench in benches:
        bench.chain.give(wallet(2).public, NATIVE, EGLD)
        bench.rounds(12)
    assert benches[0].events == benches[1].events
    assert any(len(block.transactionPool.transactions) for block in benches[0].executed())


def test_a_transfer_within_a_shard_is_final_in_the_next_round(bench: Any, wallet: Any) -> None:
    """One round is enough when its accounts share a shard; one more where blocks are executed later."""
    bench.give(wallet(0))
    tx_hash = bench.chain.submit(bench.tx(wallet(0), wallet(0, 1).public, 5))
    for _ in range(bench.here):
        assert bench.status(tx_hash) == ("pending", "")
        bench.rounds()
    assert bench.status(tx_hash) == ("success", "")


def test_a_transfer_between_shards_takes_one_hop_more(bench: Any, wallet: Any) -> None:
    """Source, metachain, then destination: debited first, credited a hop later."""
    bench.give(wallet(0))
    tx_hash = bench.chain.submit(bench.tx(wallet(0), wallet(2).public, 5))
    for _ in range(bench.here + bench.hop - 1):
        bench.rounds()
        assert (bench.status(tx_hash)[0], bench.balance(wallet(2))) == ("pending", 0)
    assert bench.chain.account(wallet(0).public).nonce == 1
    bench.rounds()
    assert (bench.status(tx_hash)[0], bench.balance(wallet(2))) == ("success", 5)


def test_nonces_are_used_in_order_whatever_the_order_of_arrival(bench: Any, wallet: Any) -> None:
    """Transactions wait for their predecessors, and then run in one block in nonce order."""
    key = wallet(1)
    bench.give(key)
    for nonce in (3, 1, 2):
        bench.chain.submit(bench.tx(key, wallet(1, 1).public, nonce, nonce=nonce))
    bench.rounds()
    assert bench.chain.account(key.public).nonce == 0
    bench.chain.submit(bench.tx(key, wallet(1, 1).public, 7, nonce=0))
    block = bench.step(1)
    infos = sorted(block.transactionPool.transactions.values(), key=lambda info: info.executionOrder)
    assert [info.transaction.nonce for info in infos] == [0, 1, 2, 3]


def test_the_dearest_transaction_comes_first(bench: Any, wallet: Any) -> None:
    """Between senders the price per unit of gas decides."""
    cheap, dear = wallet(0), wallet(0, 1)
    bench.give(cheap), bench.give(dear)
    bench.chain.submit(bench.tx(cheap, wallet(0, 2).public, 1))
    bench.chain.submit(bench.tx(dear, wallet(0, 2).public, 1, gas_price=2 * 10**9))
    block = bench.step(0)
    infos = sorted(block.transactionPool.transactions.values(), key=lambda info: info.executionOrder)
    assert [info.transaction.sender for info in infos] == [dear.public, cheap.public]


def test_a_value_beyond_the_balance_costs_the_fee_and_the_nonce(bench: Any, wallet: Any) -> None:
    """It lands in an invalid miniblock, `insufficient funds` in its receipt or log; nothing else moves."""
    key = wallet(0)
    bench.give(key)
    tx = bench.tx(key, wallet(0, 1).public, 10 * EGLD)
    tx_hash = bench.chain.submit(tx)
    block = bench.step(0)
    fee = initially_paid_fee(tx, bench.chain.network.gas)
    assert bench.balance(key) == EGLD - fee and bench.chain.account(key.public).nonce == 1
    assert bench.status(tx_hash) == ("fail", "insufficient funds")
    assert list(block.transactionPool.invalidTxs) == [tx_hash.hex()]
    receipts = [(receipt.txHash, receipt.data) for receipt in block.transactionPool.receipts.values()]
    logs = [(bytes.fromhex(log.txHash), log.log.events[0].topics[1]) for log in block.transactionPool.logs]
    assert receipts + logs == [(tx_hash, b"insufficient funds")]
    minis = [*block.blockData.body.miniBlocks, *block.blockData.intraShardMiniBlocks]
    assert [mini.type for mini in minis] == [pb.InvalidBlock]


def test_the_relayer_pays_and_is_not_told_among_altered_accounts(bench: Any, wallet: Any) -> None:
    """A wallet without EGLD sends tokens; the fee is the relayer's, whose account is left out."""
    key = wallet(0)
    bench.give(key, TOKEN, 1000)
    relayer = bench.relayers[0]
    before = bench.balance(relayer)
    data = esdt_transfer(TOKEN, 400)
    tx = bench.tx(key, wallet(0, 1).public, 0, data, gas_limit=100_000 + 1500 * len(data) + 200_000, relayed=True)
    tx_hash = bench.chain.submit(tx)
    block = bench.step(0)
    assert bench.status(tx_hash)[0] == "success"
    assert bench.balance(wallet(0, 1), TOKEN) == 400 and bench.balance(key) == 0
    assert before - bench.balance(relayer) == bench.fees_of(block) > 0
    told = {account.address for account in block.alteredAccounts.values()}
    assert len(told) == 2


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_failed_call_costs_the_fee_and_leaves_the_tokens(bench: Any, wallet: Any, shard: int) -> None:
    """From any shard: the tokens are back, the whole gas is paid by the relayer, the reason is the contract's."""
    key, relayer = wallet(shard), bench.relayers[shard]
    bench.give(key, TOKEN, 1000)
    before = bench.balance(relayer)
    data = esdt_transfer(TOKEN, 400, "xo", b"\x01")
    tx = bench.tx(key, bench.chain.market.addresses.aggregator, 0, data, gas_limit=30_000_000, relayed=True)
    tx_hash = bench.chain.submit(tx)
    bench.rounds(bench.here + 2 * bench.hop)
    status, reason = bench.status(tx_hash)
    assert status == "fail" and reason.startswith("execution failed: ")
    assert bench.balance(key, TOKEN) == 1000
    assert before - bench.balance(relayer) == initially_paid_fee(tx, bench.chain.network.gas)


def test_deeper_tries_make_calls_dearer(make_bench: Any, wallet: Any) -> None:
    """The setting reaches the contracts: wrapping reads two keys, each of which costs what its depth does."""
    fees = []
    for depth in (2, 5):
        bench = make_bench(trie_depth=depth)
        key = wallet(bench.chain.home)
        bench.give(key)
        before = bench.balance(key)
        bench.chain.submit(bench.tx(key, bench.chain.market.addresses.wrapper, 1, b"wrapEgld", gas_limit=10_000_000))
        bench.rounds(bench.here + bench.hop)
        fees.append(before - bench.balance(key))
    more = 2 * (first_load(5) - first_load(2))
    assert fees[1] - fees[0] == more * processing_price(10**9, bench.chain.network.gas)


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_unused_gas_returns_to_the_relayer(bench: Any, wallet: Any, shard: int) -> None:
    """A call that succeeds refunds its unused gas with the message `gas refund for relayer`."""
    key, relayer = wallet(shard), bench.relayers[shard]
    bench.give(key)
    before = bench.balance(relayer)
    at = bench.chain.market.addresses
    tx = bench.tx(key, at.wrapper, 10**6, b"wrapEgld", gas_limit=10_000_000, relayed=True)
    tx_hash = bench.chain.submit(tx)
    blocks = bench.executed(bench.rounds(bench.here + 2 * bench.hop))
    assert bench.status(tx_hash) == ("success", "")
    assert bench.balance(key, "WEGLD-bd4d79") == 10**6
    refunds = {
        scr_hash: info.smartContractResult
        for block in blocks
        for scr_hash, info in block.transactionPool.smartContractResults.items()
        if info.smartContractResult.returnMessage == b"gas refund for relayer"
    }
    (refund,) = refunds.values()
    amount = int.from_bytes(refund.value[1:], "big")
    assert refund.receiver == relayer.public and refund.originalTxHash == tx_hash
    assert before - bench.balance(relayer) == initially_paid_fee(tx, bench.chain.network.gas) - amount
    assert any(outport_event(block, tx_hash, "completedTxEvent") for block in blocks)


def outport_event(block: pb.OutportBlock, tx_hash: bytes, identifier: str) -> bool:
    """Whether a log of the transaction, or of one of its results, has such an event."""
    results = block.transactionPool.smartContractResults
    own = {tx_hash.hex()} | {key for key, info in results.items() if info.smartContractResult.originalTxHash == tx_hash}
    return any(
        log.txHash in own and any(event.identifier == identifier.encode() for event in log.log.events)
        for log in block.transactionPool.logs
    )


def test_results_on_the_wire_say_what_they_carry(bench: Any, wallet: Any) -> None:
    """Value and data of every result parse back into the payments it delivers."""
    key = wallet(2)
    bench.give(key), bench.give(key, TOKEN, 1000)
    contract = bench.chain.market.addresses.aggregator
    payments = [TokenPayment(TOKEN, 0, 7), TokenPayment(NATIVE, 0, 9)]
    bench.chain.submit(bench.multi(key, contract, payments, "xo", gas_limit=30_000_000))
    bench.rounds(bench.here + 2 * bench.hop)
    seen = 0
    for shard in bench.chain.shards.values():
        for block in shard.blocks:
            for entry in block.content.entries.values():
                if entry.item.__class__.__name__ != "Result":
                    continue
                result = entry.item
                parsed = parse_transfer(result.sender, result.receiver, result.value, result.data)
                assert Counter(parsed.payments) == Counter(result.payments)
                seen += 1
    assert seen >= 2


def test_a_stopped_shard_holds_what_others_send_until_it_starts(bench: Any, wallet: Any) -> None:
    """Nothing is lost: the transfer arrives when the shard makes blocks again, and skipped rounds are told."""
    bench.give(wallet(0))
    bench.chain.shards[2].stopped = True
    tx_hash = bench.chain.submit(bench.tx(wallet(0), wallet(2).public, 5))
    assert not bench.saved(bench.rounds(5), shard=2)
    assert bench.status(tx_hash)[0] == "pending"
    bench.chain.shards[2].stopped = False
    events = bench.rounds()
    bench.rounds(bench.here - 1)
    assert bench.status(tx_hash)[0] == "success" and bench.balance(wallet(2)) == 5
    (told,) = [pb.RoundsInfo.FromString(e.payload) for e in events if e.topic == "SaveRoundsInfo" and e.shard == 2]
    assert sorted(info.blockWasProposed for info in told.roundsInfo) == [False] * 5 + [True]


def test_a_held_shard_makes_no_block(bench: Any) -> None:
    """A shard whose observer cannot take more events waits, and the others go on."""
    events = bench.rounds(held=frozenset({1}))
    assert {block.shardID for block in bench.saved(events)} == {0, 2, 0xFFFFFFFF}


def test_shards_wait_for_a_metachain_that_is_held_and_nothing_is_lost(bench: Any, wallet: Any) -> None:
    """Without the metachain shards stop after some blocks; once it goes on, what they sent arrives."""
    meta = 0xFFFFFFFF
    bench.give(wallet(0))
    tx_hash = bench.chain.submit(bench.tx(wallet(0), wallet(2).public, 5))
    before = bench.chain.block_nonce(0)
    bench.rounds(200, held=frozenset({meta}))
    assert 0 < bench.chain.block_nonce(0) - before < 64
    assert bench.status(tx_hash)[0] == "pending"
    bench.rounds(1 + bench.here)
    assert bench.status(tx_hash)[0] == "success" and bench.balance(wallet(2)) == 5


def test_old_transactions_are_forgotten_and_old_blocks_keep_no_body(make_bench: Any, wallet: Any) -> None:
    """The index keeps to its bound, and what it holds of an old block is its name alone."""
    bench = make_bench(max_known_transactions=3)
    bench.give(wallet(0))
    sent = []
    for _ in range(5):
        sent.append(bench.chain.submit(bench.tx(wallet(0), wallet(0, 1).public, 1)))
        bench.rounds(bench.here)
    bench.rounds(80)
    assert [bench.chain.index.find(tx_hash) is None for tx_hash in sent] == [True, True, False, False, False]
    record = bench.chain.index.find(sent[-1])
    assert record.status == "success" and record.source.hash and not record.source.content.entries


@pytest.mark.parametrize(("delay", "first"), [(0, True), (0, False), (2, True), (2, False)])
def test_finality_is_told_once_per_block_and_in_order(make_bench: Any, delay: int, first: bool) -> None:
    """Each block becomes final exactly `finality_rounds` later, told before or after SaveBlock as set."""
    bench = make_bench(finality_rounds=delay, finalized_first=first)
    bench.rounds(6)
    for shard in range(3):
        own = [event for event in bench.events if event.shard == shard]
        saved = [pb.OutportBlock.FromString(e.payload).blockData.headerHash for e in own if e.topic == "SaveBlock"]
        final = [pb.FinalizedBlock.FromString(e.payload).headerHash for e in own if e.topic == "FinalizedBlock"]
        assert final == saved[: 6 - delay]
        topics = [event.topic for event in own][-3:]
        assert topics.index("FinalizedBlock") < topics.index("SaveBlock") or not first


def test_every_event_decodes_and_is_canonical(bench: Any, wallet: Any) -> None:
    """Each payload is the message of its topic, byte for byte as a Go node would write it."""
    bench.events += bench.chain.genesis()
    bench.give(wallet(0))
    bench.chain.submit(bench.tx(wallet(0), bench.chain.market.addresses.wrapper, 5, b"wrapEgld", gas_limit=10_000_000))
    bench.rounds(5)
    assert {event.topic for event in bench.events} == set(outport.PAYLOADS) - {"Settings", "RevertIndexedBlock"}
    for event in bench.events:
        message = outport.decode_payload(event.topic, event.payload)
        assert outport.serialize(message) == event.payload
        assert outport.shard_of_payload(event.payload) == event.shard or event.topic == "SaveValidatorsRating"


def test_altered_accounts_hold_the_state_after_the_block(bench: Any, wallet: Any) -> None:
    """Nonce, balance and touched tokens are those of the ledger when the block was done."""
    key = wallet(1)
    bench.give(key), bench.give(key, TOKEN, 1000)
    data = esdt_transfer(TOKEN, 400)
    bench.chain.submit(bench.tx(key, wallet(1, 1).public, 0, data, gas_limit=300_000 + 1500 * len(data)))
    block = bench.step(1)
    for text, told in block.alteredAccounts.items():
        account = bench.chain.account(decode(text))
        assert (told.address, told.nonce, told.balance) == (text, account.nonce, str(account.balance))
        for token in told.tokens:
            assert token.balance == str(account.tokens.get(token.identifier.decode(), 0))
    assert len(block.alteredAccounts) == 2


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_who_waits_for_a_grant_is_told_whether_it_came(bench: Any, wallet: Any, shard: int) -> None:
    """A shard that opens no more accounts burns a grant to a new one, and whoever waits for it hears that it did."""
    heard: list[bool] = []
    ledger = bench.chain.shards[shard].state.ledger
    bench.chain.give(wallet(shard).public, NATIVE, EGLD, heard.append)
    bench.rounds(bench.here + bench.hop)
    assert heard == [True] and bench.balance(wallet(shard)) == EGLD
    ledger._max_accounts = len(ledger.accounts)
    bench.chain.give(wallet(shard, 1).public, NATIVE, EGLD, heard.append)
    bench.rounds(bench.here + bench.hop)
    assert heard == [True, False] and bench.balance(wallet(shard, 1)) == 0


def test_a_grant_survives_a_revert(make_bench: Any, wallet: Any) -> None:
    """What the faucet gave in a block taken back is given again in the next one, once."""
    bench = make_bench(finality_rounds=8)
    home = bench.chain.home
    bench.chain.give(wallet(home).public, NATIVE, 7)
    bench.rounds(bench.here)
    assert bench.balance(wallet(home)) == 7
    bench.chain.take_back(home, bench.here)
    assert bench.balance(wallet(home)) == 0
    bench.rounds(bench.here)
    assert bench.balance(wallet(home)) == 7


def test_full_blocks_leave_the_rest_for_later(make_bench: Any, wallet: Any) -> None:
    """A block executes no more items than its bound; nothing is lost."""
    bench = make_bench(max_block_items=5)
    key = wallet(0)
    bench.give(key)
    for nonce in range(12):
        bench.chain.submit(bench.tx(key, wallet(0, 1).public, 1, nonce=nonce))
    blocks = bench.executed(bench.rounds(2 + bench.here), shard=0)
    assert [len(block.transactionPool.transactions) for block in blocks[-3:]] == [5, 5, 2]


@pytest.mark.parametrize("name", ["documented", "mainnet", "devnet", "testnet"])
def test_every_profile_makes_a_working_chain(make_bench: Any, wallet: Any, name: str) -> None:
    """Under either shard rule transfers arrive, and a call to a system contract fails with its money back."""
    bench = make_bench(profile=name, relayers=())
    keys = [wallet(number % 3, number) for number in range(6)]
    for key in keys:
        bench.give(key)
    shards = {bench.chain.shard_of(key.public) for key in keys}
    assert len(shards) > 1
    sent = [bench.chain.submit(bench.tx(key, keys[0].public, 5)) for key in keys[1:]]
    system = bench.chain.submit(bench.tx(keys[0], ESDT_SYSTEM_CONTRACT, 7, b"issue", gas_limit=100_000))
    bench.rounds(bench.here + 2 * bench.hop)
    assert [bench.status(tx_hash)[0] for tx_hash in sent] == ["success"] * 5
    assert bench.status(system)[0] == "fail"
    assert bench.balance(keys[0]) == EGLD + 25 - initially_paid_fee(
        bench.chain.index.find(system).tx, bench.chain.network.gas
    )
