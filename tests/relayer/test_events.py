"""From events to words: each final block's accounts are told, whatever is known of them otherwise."""

from __future__ import annotations

from typing import Any

from relayer_support import Chain, connected, start, submit, transfer, wallet

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb

ALICE = wallet(1)


async def nonces(client: Any, count: int) -> list[int]:
    return [(await client.push())["data"]["nonce"] for _ in range(count)]


async def test_updates_while_the_chain_api_is_ahead(world: Any) -> None:
    """The chain API speaks of blocks not yet final: those that become final are told all the same."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        world.api.set(ALICE.public, 3, 10**18)
        assert await submit(world, transfer(ALICE, 3)) == ["ok"]
        for nonce in (1, 2, 3):
            chain.final(accounts={ALICE.public: (nonce, 10**18)})
        assert await nonces(client, 3) == [1, 2, 3]
    assert (await world.service.accounts.know(ALICE.public)).nonce == 3, "what is signed for follows the newest"


async def test_updates_of_blocks_that_become_final_together(world: Any) -> None:
    """Each of several blocks that one mark makes final is told, also of a sender whose transactions all have."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    sent = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(world, *sent) == ["ok"] * 3
    signed = [entry.tx for entry in world.service.desk.inflight.entries()]
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        blocks = [chain.save([tx], accounts={ALICE.public: (tx.nonce + 1, 10**18)}) for tx in signed]
        chain.finalise(blocks[-1])
        assert await nonces(client, 3) == [1, 2, 3]
    assert len(world.service.desk.inflight) == 0


async def test_announcements_that_are_older_are_not_told(world: Any) -> None:
    """Accounts announced without their block, later than newer ones, are old news."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    await world.service.accounts.know(ALICE.public)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        block = chain.final(accounts={ALICE.public: (5, 10**18)})
        for nonce in (4, 6):
            message = pb.Accounts(shardID=1, blockTimestampMs=block.blockData.timestampMs)
            text = address.encode(ALICE.public)
            message.alteredAccounts[text].CopyFrom(pb.AlteredAccount(address=text, nonce=nonce, balance="1"))
            chain.tell(outport.SAVE_ACCOUNTS, message)
        assert await nonces(client, 2) == [5, 6]
