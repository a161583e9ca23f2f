"""Small chains driven by hand, wallets that sign for them, and the sums that must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from millrace.chain import outport
from millrace.chain.address import encode
from millrace.chain.call import TokenPayment, multi_transfer
from millrace.chain.keys import KeyPair
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction, signing_message
from millrace.localnet.chain.machine import Chain, NodeEvent
from millrace.localnet.settings import LocalnetSettings

EGLD = 10**18
GAS_PRICE = 10**9
SMALL = {"pools": 30, "tokens": 12, "traders_per_second": 0.0, "relayer_egld": 50}


def key_in(shard: int, number: int = 0) -> KeyPair:
    """The `number`-th wallet of a shard, the same one each time (shard: last byte modulo 3)."""
    found = -1
    for seed in range(10_000):
        key = KeyPair.from_seed(b"localnet tests" + seed.to_bytes(18, "big"))
        if key.public[-1] % 3 == shard:
            found += 1
            if found == number:
                return key
    raise AssertionError("no such wallet")


class Bench:
    """A chain, its events so far, and short ways to use both."""

    def __init__(self, **settings: Any) -> None:
        self.relayers = {shard: key_in(shard, 9) for shard in range(3)}
        relayers = tuple(encode(key.public) for key in self.relayers.values())
        self.chain = Chain(
            LocalnetSettings(**({**SMALL, "relayers": relayers} | settings)), genesis_ms=1_700_000_000_000
        )
        self.events: list[NodeEvent] = []
        self.initial = self.held()

    # Acting

    def rounds(self, count: int = 1, **kwargs: Any) -> list[NodeEvent]:
        """So many rounds; the events of all of them."""
        events = []
        for _ in range(count):
            events += self.chain.advance_round(**kwargs)
        self.events += events
        return events

    def give(self, key: KeyPair, token: str = NATIVE, amount: int = EGLD) -> None:
        """Fund an account and wait until it has the amount."""
        before = self.balance(key, token)
        self.chain.give(key.public, token, amount)
        for _ in range(4):
            self.rounds()
        assert self.balance(key, token) == before + amount

    def tx(self, key: KeyPair, receiver: bytes, value: int = 0, data: bytes = b"", **fields: Any) -> Transaction:
        """A signed transaction; `relayed=True` lets the shard's relayer pay."""
        relayer = self.relayers[key.public[-1] % 3] if fields.pop("relayed", False) else None
        draft = Transaction(
            **{
                "nonce": self.chain.account(key.public).nonce,
                "value": value,
                "receiver": receiver,
                "sender": key.public,
                "gas_price": GAS_PRICE,
                "gas_limit": 50_000 + 1500 * len(data) + (50_000 if relayer else 0),
                "chain_id": "local",
                "data": data,
                "relayer": relayer.public if relayer else b"",
            }
            | fields
        )
        message = signing_message(draft)
        return msgspec.structs.replace(
            draft, signature=key.sign(message), relayer_signature=relayer.sign(message) if relayer else b""
        )

    def multi(
        self, key: KeyPair, receiver: bytes, payments: list[TokenPayment], *call: Any, **fields: Any
    ) -> Transaction:
        """A transfer of several tokens, sent to oneself as the chain wants it."""
        return self.tx(key, key.public, data=multi_transfer(receiver, payments, *call), **fields)

    # Looking

    def balance(self, key: KeyPair, token: str = NATIVE) -> int:
        """What a wallet holds."""
        return self.chain.ledger_of(key.public).balance_of(key.public, token)

    def status(self, tx_hash: bytes) -> tuple[str, str]:
        """Status and reason of a transaction."""
        record = self.chain.index.find(tx_hash)
        assert record is not None
        return record.status, record.reason

    def held(self) -> int:
        """All EGLD in accounts."""
        return sum(
            account.balance for shard in self.chain.shards.values() for account in shard.state.ledger.accounts.values()
        )

    def state(self) -> dict[int, Any]:
        """Everything in all ledgers, as values that compare."""
        return {
            number: (
                {key: (a.nonce, a.balance, dict(a.tokens)) for key, a in shard.state.ledger.accounts.items()},
                dict(shard.state.ledger.pools),
            )
            for number, shard in self.chain.shards.items()
        }

    def saved(self, events: list[NodeEvent] | None = None, shard: int | None = None) -> list[pb.OutportBlock]:
        """The blocks in events."""
        return [
            pb.OutportBlock.FromString(event.payload)
            for event in (self.events if events is None else events)
            if event.topic == outport.SAVE_BLOCK and shard in (None, event.shard)
        ]


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Makes a chain with settings of choice."""
    return Bench


@pytest.fixture
def bench() -> Bench:
    """A small quiet chain whose blocks are final at once."""
    return Bench()


@pytest.fixture
def wallet() -> Callable[..., KeyPair]:
    """Makes the same wallets each time: `wallet(shard, number)`."""
    return key_in
