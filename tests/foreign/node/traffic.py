"""What people do on a network: moves, tokens, contracts, calls of contracts by contracts, and whatever goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.foreign.node.network import CHAIN, Nodes, configuration
from tests.foreign.node.services import Relayer
from tests.foreign.node.wallets import EGLD, Wallet, call

from millrace.chain import address
from millrace.chain.transaction import Transaction, chain_hash, to_json

SYSTEM = address.decode("erd1qqqqqqqqqqqqqqqpqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqzllls8a5w6u")
"""The metachain's contract for tokens."""
ISSUE_COST = 5 * EGLD
KINDS = ("legacy_async", "transfer_execute", "promise")
TARGETS = ("accept_funds", "reject_funds")
CODE_METADATA = b"\x05\x06"


class Sent(NamedTuple):
    """A transaction that was handed over."""

    name: str
    tx: Transaction
    """As its sender signed it."""


class Traffic:
    """A wallet or two in each shard, and all they send by the hash that the chain knows it by."""

    def __init__(self, nodes: Nodes, relayer: Relayer) -> None:
        self._nodes, self._relayer = nodes, relayer
        self.senders = [Wallet(shard) for shard in range(CHAIN.shards)]
        self.others = [Wallet(shard) for shard in range(CHAIN.shards)]
        self.sent: dict[str, Sent] = {}
        self.contracts: dict[tuple[str, int], bytes] = {}
        self.tokens: dict[int, str] = {}
        self._wasm = configuration().parents[2] / "integrationTests"

    async def fund(self) -> None:
        """Money for all wallets and relayer keys."""
        for wallet in [*self.senders, *self.others, *self._relayer.keys]:
            await self._nodes.mint(wallet.public, 100 * EGLD)

    async def send(
        self, name: str, sender: Wallet, receiver: bytes, value: int = 0, data: bytes = b"", gas: int = 0,
        *, relayed: bool = True,
    ) -> None:  # fmt: skip
        """Through our relayer, which pays for it if it is `relayed`."""
        relayer = self._relayer.keys[sender.shard].public if relayed else b""
        tx = sender.sign(receiver, value, data, gas, relayer)
        reply = await self._relayer.submit(tx)
        assert reply["status"] == "completed", (name, reply)
        sender.nonce += 1
        self.sent[reply["results"][0]["hash"]] = Sent(name, tx)

    async def past_us(
        self, name: str, sender: Wallet, receiver: bytes, value: int, data: bytes = b"", gas: int = 0
    ) -> None:
        """Straight to the sender's node; our relayer only hears of it."""
        tx = sender.sign(receiver, value, data, gas)
        tx_hash = chain_hash(tx).hex()
        await self._relayer.subscribe(tx_hash)
        status, answer = await self._nodes.post(sender.shard, "/transaction/send", msgspec.to_builtins(to_json(tx)))
        assert status == 200, answer
        sender.nonce += 1
        self.sent[tx_hash] = Sent(name, tx)

    async def moves(self, word: str = "") -> None:
        """Within each shard and between any two, paid for by us and not."""
        for sender in self.senders:
            for receiver in self.others:
                way = f"{word}{sender.shard}->{receiver.shard}"
                await self.send(f"move {way}", sender, receiver.public, 10**15, relayed=False)
                await self.send(f"relayed move {way}", sender, receiver.public, 10**15, b"hello")
                await self.send(f"move with too much gas {way}", sender, receiver.public, 10**15, gas=777)
            await self.send(f"move to nobody yet {sender.shard}", sender, Wallet((sender.shard + 1) % 3).public, 10**12)

    async def deployments(self) -> None:
        """Contracts in all shards, and one that is none; tokens are issued meanwhile, some badly."""
        files = {
            "adder": self._wasm / "chainSimulator/relayedTx/testData/adder.wasm",
            "vault": self._wasm / "vm/txsFee/testdata/forwarderQueue/vault-promises.wasm",
        } | {
            f"{kind} {target}": self._wasm / "vm/txsFee/testdata/forwarderQueue/forwarder-queue-promises.wasm"
            for kind in KINDS
            for target in TARGETS
        }
        for sender in self.senders:
            for number, (name, file) in enumerate(files.items()):
                self.contracts[name, sender.shard] = sender.contract()
                await self.deploy(name, sender, file, relayed=number % 2 == 0)
            await self.send(
                f"deploy nonsense {sender.shard}", sender, address.ZERO, 0, b"0061736d@0500@0506", 40_000_000
            )

    async def deploy(self, name: str, sender: Wallet, file: Path, *, relayed: bool) -> None:
        """One contract."""
        arguments = (b"\x05",) if name == "adder" else ()
        data = call(_code(file), b"\x05\x00", CODE_METADATA, *arguments)
        await self.send(f"deploy {name} {sender.shard}", sender, address.ZERO, 0, data, 35_000_000, relayed=relayed)

    async def issues(self) -> None:
        """A token of each sender, by the metachain's contract, and what it refuses."""
        for sender in self.senders:
            issue = call("issue", "MillraceToken", f"TOK{sender.shard}", 10**6, 6, "canUpgrade", "true")
            await self.send(f"issue {sender.shard}", sender, SYSTEM, ISSUE_COST, issue, 60_000_000)
            await self.send(f"issue unpaid {sender.shard}", sender, SYSTEM, 0, issue, 60_000_000)
            await self.send(
                f"issue cheaply {sender.shard}", sender, SYSTEM, EGLD, issue, 60_000_000, relayed=sender.shard == 0
            )

    async def learn_tokens(self) -> None:
        """What was issued."""
        for sender in self.senders:
            held = await self._nodes.get(sender.shard, f"/address/{address.encode(sender.public)}/esdt")
            assert held is not None
            (self.tokens[sender.shard],) = held["esdts"]

    async def calls(self) -> None:
        """Calls that end well, that fail in the contract, for want of gas, of a function, of a right to be paid."""
        for sender in self.senders:
            for shard in range(CHAIN.shards):
                way, adder = f"{sender.shard}->{shard}", self.contracts["adder", shard]
                await self.send(f"add {way}", sender, adder, 0, call("add", 3), 1_600_000)
                await self.send(f"add unsponsored {way}", sender, adder, 0, call("add", 3), 1_600_000, relayed=False)
                await self.send(f"add with all too much gas {way}", sender, adder, 0, call("add", 3), 100_000_000)
                await self.send(f"no such function {way}", sender, adder, 0, call("subtract", 3), 2_000_000)
                await self.send(f"no gas {way}", sender, adder, 0, call("add", 3), 1_000)
                await self.send(f"paid for nothing {way}", sender, adder, 10**15, call("add"), 3_000_000)
                await self.send(f"move to contract {way}", sender, adder, 10**14, b"", 0)

    async def tokens_move(self) -> None:
        """Tokens to people and to contracts, alone and several at once, accepted and sent back."""
        for sender in self.senders:
            token = self.tokens[sender.shard]
            for receiver in self.others:
                way = f"{sender.shard}->{receiver.shard}"
                await self.send(f"token {way}", sender, receiver.public, 0, call("ESDTTransfer", token, 1000), 400_000)
            for shard in range(CHAIN.shards):
                way, vault, adder = (
                    f"{sender.shard}->{shard}",
                    self.contracts["vault", shard],
                    self.contracts["adder", shard],
                )
                to_vault = call("ESDTTransfer", token, 500, "accept_funds")
                await self.send(f"token to vault {way}", sender, vault, 0, to_vault, 8_000_000)
                to_adder = call("ESDTTransfer", token, 500, "add", 3)
                await self.send(f"token sent back {way}", sender, adder, 0, to_adder, 8_000_000)
                two = call("MultiESDTNFTTransfer", vault, 2, token, 0, 3, "EGLD-000000", 0, 10**12, "accept_funds")
                await self.send(f"two to vault {way}", sender, sender.public, 0, two, 8_000_000)
                back = call("MultiESDTNFTTransfer", adder, 2, token, 0, 3, token, 0, 4, "add", 1)
                await self.send(f"two sent back {way}", sender, sender.public, 0, back, 8_000_000)
            other = self.others[(sender.shard + 1) % 3].public
            too_much = call("ESDTTransfer", token, 10**12)
            await self.send(f"more than there is {sender.shard}", sender, other, 0, too_much, 400_000)
            await self.send(f"token without gas {sender.shard}", sender, other, 0, call("ESDTTransfer", token, 1), 5)
            # Functions of the protocol that leave no log, here and for another shard.
            keep = call("SaveKeyValue", "key", "value")
            await self.send(f"keep {sender.shard}", sender, sender.public, 0, keep, 1_000_000)
            await self.send(f"name {sender.shard}", sender, other, 0, call("SetUserName", "name"), 1_000_000)
            await self.send(f"words and too much gas {sender.shard}", sender, other, 0, b"hello", 1_000)

    async def chains_of_calls(self) -> None:
        """Contracts that call contracts in their own shard and in others, with call-backs and without."""
        for sender in self.senders:
            vault = self.contracts["vault", (sender.shard + 1) % 3]
            for at in range(CHAIN.shards):
                for kind in KINDS:
                    for target in TARGETS:
                        way, forwarder = f"{kind} {target} {sender.shard}->{at}", self.contracts[f"{kind} {target}", at]
                        gas = () if kind == "legacy_async" else (15_000_000,)
                        queued = call(f"add_queued_call_{kind}", vault, *gas, target)
                        await self.send(f"queue {way}", sender, forwarder, 10**13, queued, 12_000_000)
                        await self.send(f"run {way}", sender, forwarder, 0, call("forward_queued_calls"), 60_000_000)

    async def poverty(self) -> None:
        """Somebody sends more than there is: the chain takes the fee, and nothing else."""
        for shard in range(CHAIN.shards):
            poor = Wallet(shard)
            await self._nodes.mint(poor.public, 10**15)
            await self._nodes.blocks(1)
            await self.past_us(f"more money than there is {shard}", poor, self.others[0].public, 10**16)


def _code(file: Path) -> str:
    return file.read_bytes().hex()
