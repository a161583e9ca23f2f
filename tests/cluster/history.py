"""What happened in a run of the cluster, as a list of plain records: all that the checker knows.

Times are milliseconds since the epoch, of one clock. Names of transactions are hashes in hex; `payload` is the client
hash, which is the same for the same bytes whoever co-signs them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

ROUND_MS = 600
"""Of the chain."""
FINAL_MS = ROUND_MS
"""After the time that a transaction's block bears: what it did is told by the next block, which is final at once here,
and nobody outside hears of it before. The chain's clock may be late, never early."""
Said = Literal["accepted", "refused", "lost"]
Seen = Literal["reply", "network", "journal", "claim"]


class Record(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One thing that happened."""

    at: int = 0


class Asked(Record, frozen=True):
    """A client submits a payload."""

    op: int
    action: str
    sender: str
    nonce: int
    payload: str
    line: int = 0
    """On which connection, if it is one that pushes come on."""


class Answered(Record, frozen=True):
    """What became of a submission, as its client knows: `lost` is no answer at all."""

    op: int
    said: Said
    words: str = ""


class Signed(Record, frozen=True):
    """A co-signature exists. `seen`: in a reply, on the network, in a relayer's journal; or only claimed beforehand."""

    key: str
    sender: str
    nonce: int
    payload: str
    fee: int
    seen: Seen


class Ended(Record, frozen=True):
    """What the chain itself says of a transaction in the end.

    `at` is the time that the block bears which took it (the API's own time stamp is that of its submission): nobody can
    have heard of it earlier, as the chain's clock may be late.
    """

    payload: str
    sender: str
    nonce: int
    names: tuple[str, ...]
    """All hashes it is known by."""
    status: str
    seen: int
    """When the test found out; who listens to notifiers may have known before."""


class Looked(Record, frozen=True):
    """What the service says in the end of a transaction that the chain does not have."""

    payload: str
    state: str
    words: str = ""


class Listening(Record, frozen=True):
    """A subscription is acknowledged."""

    line: int
    topic: str


class Told(Record, frozen=True):
    """A push came: the status of a tx-status, the nonce of an account, the sequence of statistics."""

    line: int
    topic: str
    status: str = ""
    number: int = 0


class Gone(Record, frozen=True):
    """A connection has ended, or was left."""

    line: int


class Read(Record, frozen=True):
    """A consumer of the hub was given an event; of a saved block its height, and the time that it bears."""

    id: str
    height: int | None = None
    made: int = 0


class Missed(Record, frozen=True):
    """A consumer of the hub was told that it missed something."""

    why: str


class Published(Record, frozen=True):
    """An event came out of the broker; `height` is that of a saved block."""

    id: str
    height: int | None = None


class Struck(Record, frozen=True):
    """A fault begins."""

    kind: str
    victim: str
    seconds: float


class Made(Record, frozen=True):
    """What the chain itself says of a shard in the end: its newest block. The first one has height 1."""

    shard: str
    height: int


class Settled(Record, frozen=True):
    """Nothing is broken any more, and whoever is owed anything has had it, or had all the time that the run gives."""


Any_ = (
    Asked | Answered | Signed | Ended | Looked | Listening | Told | Gone | Read | Missed | Published | Struck | Made
    | Settled
)  # fmt: skip
R = TypeVar("R", bound=Record)


class History:
    """Records in the order in which they were made."""

    def __init__(self, records: Iterable[Any_] = ()) -> None:
        self.records: list[Any_] = list(records)

    def add(self, record: Any_) -> None:
        """Write down what happened now, unless it says when."""
        self.records.append(record if record.at else msgspec.structs.replace(record, at=now_ms()))

    def of(self, kind: type[R]) -> list[R]:
        """All records of a kind."""
        return [record for record in self.records if isinstance(record, kind)]

    def save(self, file: Path) -> None:
        """A line of JSON for each record."""
        file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in self.records))

    @classmethod
    def load(cls, file: Path) -> History:
        """What `save` wrote."""
        return cls(msgspec.json.decode(line, type=Any_) for line in file.read_bytes().splitlines())


def now_ms() -> int:
    return time.time_ns() // 1_000_000
