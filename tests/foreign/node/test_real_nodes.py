"""Real nodes (mx-chain-go 1.10.0) tell our notifiers what happens, and our relayer is asked what became of it.

Run with `MILLRACE_GO=1 ./run test -m foreign tests/foreign/node`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.foreign.node.conftest import MARSHALLERS, World
from tests.foreign.node.network import CHAIN, SHARDS
from tests.foreign.node.told import Logs, everything, in_order, without_logs
from tests.foreign.node.truth import fate

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace_client.hub import Event

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("marshaller", MARSHALLERS)
async def test_the_hub_tells_all_that_nodes_say_and_nothing_twice(world: World, marshaller: str) -> None:
    """Whatever nodes write in, and through a kill -9: each message once, in each node's order, byte for byte but for
    logs, and those as the documentation says."""
    told = await everything(world.notifiers[marshaller].hub_url)
    assert all(isinstance(event, Event) and not event.marks for event in told)
    logs, same, changed = Logs(), 0, 0
    said = {shard: iter(in_order(items)) for shard, items in world.recorder.said.items()}
    for event in told:
        item = next(said[outport.shard_of_payload(event.payload)])
        assert event.topic == item.topic
        if event.payload == item.payload:
            same += 1
        else:
            assert event.topic == outport.SAVE_BLOCK
            changed += 1
        if event.topic == outport.SAVE_BLOCK:
            before, after = pb.OutportBlock.FromString(item.payload), pb.OutportBlock.FromString(event.payload)
            assert without_logs(before).SerializeToString() == without_logs(after).SerializeToString()
            logs.judge(before, after)
    assert [next(items, None) for items in said.values()] == [None] * len(SHARDS)
    spent = world.notifiers[marshaller].spent()
    print(f"{marshaller}: {same} as they came, {changed} with other logs, {spent:.2f} s of CPU")
    print(f"{logs.made_single} transfers of several tokens told singly, {logs.left_out} transfers left out")


async def test_the_hub_has_every_block_and_every_transaction_of_the_nodes(world: World) -> None:
    """By the nodes' own interface: every block of every shard, in order, and every transaction in it."""
    told = await everything(world.notifiers["json"].hub_url)
    blocks = [pb.OutportBlock.FromString(event.payload) for event in told if event.topic == outport.SAVE_BLOCK]
    for shard in SHARDS:
        mine = [block for block in blocks if block.blockData.shardID == shard]
        for nonce, block in enumerate(mine):
            made = await world.nodes.get(shard, f"/block/by-nonce/{nonce}?withTxs=true")
            assert made is not None
            assert made["block"]["hash"] == block.blockData.headerHash.hex()
            pool = block.transactionPool
            names = {*pool.transactions, *pool.smartContractResults, *pool.rewards, *pool.invalidTxs}
            for miniblock in made["block"].get("miniBlocks", ()):
                if miniblock["type"] != "PeerBlock" and miniblock.get("processingType") != "Processed":
                    assert {tx["hash"] for tx in miniblock.get("transactions", ())} <= names
        status = await world.nodes.get(shard, "/node/status")
        assert status is not None and status["metrics"]["erd_nonce"] == len(mine) - 1


async def test_clients_are_told_what_became_of_each_transaction_as_nodes_say_it(world: World) -> None:
    """Each transaction ends once for its subscriber, with what the gateway's rules make of the nodes' answers, and
    the relayer's own record of it says the same; where it says a fee it is what the sender's node says."""
    ends: Counter[str] = Counter()
    wrong = []
    for tx_hash, sent in world.traffic.sent.items():
        found = await fate(world.nodes, tx_hash)
        told = [push["status"] for push in world.relayer.statuses.get(tx_hash, [])]
        kept = await world.relayer.get(f"/v1/transactions/{tx_hash}")
        is_kept = "error" in kept or (kept["state"] == found.status and int(kept.get("fee", found.fee)) == found.fee)
        if told != [found.status] or not is_kept:
            wrong.append((sent.name, told, found, kept))
        ends[found.status] += 1
    print(dict(ends))
    assert wrong == []


async def test_what_a_key_holds_is_reckoned_to_the_unit(world: World) -> None:
    """From one reading at the start on, with fees and refunds of blocks alone, a key's balance is the node's."""
    ready = await world.relayer.get("/ready")
    for key in world.relayer.keys:
        balance = int((await world.nodes.account(key.public))["account"]["balance"])
        assert int(ready["relayers"][str(key.shard)]["spendable"]) == balance


async def test_accounts_are_told_as_nodes_have_them(world: World) -> None:
    """Every update of an account has the nonce, EGLD and tokens that its node has of it at that block."""
    wrong, tokens = [], 0
    for told in world.relayer.accounts:
        pubkey = address.decode(told["address"])
        assert told["shardId"] == CHAIN.shard_of(pubkey)
        at = {"blockNonce": told["blockNonce"]}
        account = (await world.nodes.account(pubkey, **at))["account"]
        balances = dict(told["balances"])
        if (account["nonce"], account["balance"]) != (told["nonce"], balances.pop("EGLD")):
            wrong.append((told, account))
        for token, amount in balances.items():
            tokens += 1
            path = f"/address/{told['address']}/esdt/{token}?blockNonce={told['blockNonce']}"
            held = await world.nodes.get(told["shardId"], path)
            if held is None or held["tokenData"]["balance"] != amount:
                wrong.append((told, token, held))
    print(len(world.relayer.accounts), "updates,", tokens, "balances of tokens")
    assert wrong == []
    assert tokens
