"""What few people do: collections, staking, other kinds of relaying."""

from __future__ import annotations

from tests.foreign.node.network import METACHAIN, Nodes
from tests.foreign.node.traffic import ISSUE_COST, SYSTEM, Traffic
from tests.foreign.node.wallets import EGLD, Wallet, call

from millrace.chain import address

DELEGATION = address.decode("erd1qqqqqqqqqqqqqqqpqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqylllslmq6y6")
"""The metachain's contract that makes contracts of people who stake together."""
SYSTEM_GAS = 60_000_000


class Rarities:
    """Each of some steps, with rounds in between."""

    def __init__(self, traffic: Traffic, nodes: Nodes) -> None:
        self._traffic, self._nodes = traffic, nodes
        self._artists = [Wallet(shard) for shard in range(3)]
        self._collections: dict[int, str] = {}

    async def begin(self) -> None:
        """Collections are issued, and somebody stakes."""
        send = self._traffic.send
        for wallet in self._artists:
            await self._nodes.mint(wallet.public, 2_000 * EGLD)
        await self._nodes.blocks(1)
        for artist in self._artists:
            issue = call("issueSemiFungible", "MillraceArt", f"ART{artist.shard}", "canTransferNFTCreateRole", "true")
            await send(f"collection {artist.shard}", artist, SYSTEM, ISSUE_COST, issue, SYSTEM_GAS)
            stake = call("createNewDelegationContract", 0, 100)
            await send(f"stake together {artist.shard}", artist, DELEGATION, 1_250 * EGLD, stake, SYSTEM_GAS)
            await send(f"stake badly {artist.shard}", artist, DELEGATION, EGLD, call("noSuchThing"), SYSTEM_GAS)

    async def roles(self) -> None:
        """Artists get the right to make pieces."""
        for artist in self._artists:
            path = f"/address/{address.encode(artist.public)}/registered-nfts"
            registered = await self._nodes.get(METACHAIN, path)
            assert registered is not None
            (self._collections[artist.shard],) = registered["tokens"]
            role = call("setSpecialRole", self._collections[artist.shard], artist.public, "ESDTRoleNFTCreate")
            await self._traffic.send(f"role {artist.shard}", artist, SYSTEM, 0, role, SYSTEM_GAS)

    async def relayed_by_others(self) -> None:
        """By the second version of relayed transactions, of which our relayer only hears."""
        for payer in self._artists:
            for shard in range(3):
                for function in ("add", "subtract"):
                    poor = Wallet(payer.shard)
                    data = poor.inner(self._traffic.contracts["adder", shard], call(function, 1))
                    name = f"{function} relayed by others {payer.shard}->{shard}"
                    await self._traffic.past_us(name, payer, poor.public, 0, data, 5_000_000)
