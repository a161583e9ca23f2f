"""The signing process: holds the relayer's keys and signs what was journalled, nothing else.

It runs as `python -m millrace.relayer.signing.process FD` on one end of a socket pair. Whatever the service asks, a
signature leaves only for a transaction that names one of our keys as relayer of its sender's shard, that its
sender (and guardian) signed, in which no relayer key is a party, that is within the caps and lists of the policy
file, and whose record is committed in the journal.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import signal
import socket
import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from millrace.chain.keys import KeyPair
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction, TransactionError, from_proto, signing_message
from millrace.relayer.journal import chain, memory
from millrace.relayer.journal.advice import WHAT_TO_DO
from millrace.relayer.journal.mark import Mark
from millrace.relayer.journal.memory import MemoryLost
from millrace.relayer.journal.reading import POLICY, meta, read_only
from millrace.relayer.journal.submissions import ROWS_AT_ONCE
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import policy, stages
from millrace.relayer.rules.policy_file import PolicyFile
from millrace.relayer.signing import keystore
from millrace.relayer.signing.wire import (
    HEADER,
    MAX_FRAME,
    Answer,
    Command,
    Done,
    Failed,
    Ready,
    Report,
    Start,
    Work,
    command_decoder,
    frame,
)
from millrace.runtime.process import die_with_parent

_PR_SET_DUMPABLE = 4
_MCL_CURRENT, _MCL_FUTURE = 1, 2

MAX_CHECKED = 4096
"""Transactions remembered from their check until they are signed; one that was forgotten is verified again."""
MAX_CHECKED_BYTES = 4096
"""Longer ones are not remembered, so that all of them together take some 16 MiB at most."""

_ASKED = stages.Origin("relay", "")
"""Whoever asked for a signature: what must hold does not depend on it."""
NOT_JOURNALLED = reasons.Reason("not in the journal", "not_journalled")


class _Read(msgspec.Struct, frozen=True, gc=False):
    """A transaction that is as it should be but for its signatures, and the bytes that each of them is over."""

    data: bytes
    """The transaction in protobuf form."""
    examined: stages.Examined
    message: bytes


class _Checked(msgspec.Struct, frozen=True, gc=False):
    """A transaction whose signatures were verified, and the bytes that ours will be over."""

    authenticated: stages.Authenticated
    tx: Transaction
    message: bytes


_Run = tuple[bytes, int, int, bytes]
"""Rows of the journal: those of a sender, from a nonce to another, with the key of ours that is asked to sign."""
_Row = tuple[bytes, int, bytes]
"""Sender, nonce and client hash, which covers every byte to sign."""


class Vault:
    """The keys and everything that must hold before one of them signs."""

    def __init__(
        self, pairs: dict[int, KeyPair], network: NetworkProfile, journal: Path, mark: Mark, rules: PolicyFile
    ):
        self._pairs = pairs
        self._network = network
        self._relayers = stages.Relayers({shard: pair.public for shard, pair in pairs.items()})
        self._journal_path = journal
        self._mark = mark
        self._sequence = 0
        """Of the newest commit that was read in it."""
        self._journal: sqlite3.Connection | None = None
        self._rules = rules
        self._checked: OrderedDict[bytes, _Checked] = OrderedDict()

    @property
    def relayers(self) -> dict[int, bytes]:
        """Public keys by shard."""
        return self._relayers.by_shard

    def lock(self) -> bool:
        """Keep the keys out of swap, where the whole process may not be; whether the kernel agreed."""
        agreed = [pair.lock() for pair in self._pairs.values()]  # each, also after one that failed
        return all(agreed)

    def check_all(self, items: list[bytes]) -> list[str]:
        """For each transaction in protobuf form an empty text if it is signed as it should be, or the reason why not.

        All are read before the first signature is verified: the processor's caches have room for one work, not for two.
        """
        read = [self._try_to_read(data) for data in items]
        return [item if isinstance(item, str) else self._check(item) for item in read]

    def _try_to_read(self, data: bytes) -> _Read | str:
        try:
            return self._read(data)
        except (TransactionError, Refused) as refusal:
            return str(refusal)

    def _check(self, item: _Read) -> str:
        """Verify a transaction's signatures, and remember that: empty, or the reason why they are not right."""
        try:
            checked = _verify(item)
        except Refused as refusal:
            return str(refusal)
        if len(item.data) <= MAX_CHECKED_BYTES:
            self._checked[item.data] = checked
            if len(self._checked) > MAX_CHECKED:
                self._checked.popitem(last=False)
        return ""

    def sign_all(self, items: list[bytes]) -> list[Answer]:
        """For each transaction in protobuf form its co-signature, or the reason why there is none.

        Raises `sqlite3.Error` when the journal cannot be read, also by a new connection: what is not known to be
        missing from it must not be called so.
        """
        if not items:
            return []
        with contextlib.suppress(policy.PolicyError):  # half written: the last good one holds; the service says so
            self._rules.refresh()
        checked = [self._approve(data) for data in items]
        wanted = _runs([item.tx for item in checked if not isinstance(item, Answer)])
        try:
            journalled = self._journalled(wanted)
        except sqlite3.Error:
            self._forget_connection()
            journalled = self._journalled(wanted)
        return [item if isinstance(item, Answer) else self._sign(item, journalled) for item in checked]

    def _approve(self, data: bytes) -> _Checked | Answer:
        """Check everything but the journal: the transaction, or why it is not signed."""
        try:
            checked = self._forget(data) or _verify(self._read(data))
            policy.check_caps(checked.tx, self._rules.policy, self._network)
            policy.check_lists(checked.tx, checked.authenticated.target, self._rules.policy.lists)
        except (TransactionError, Refused) as refusal:
            return Answer(refusal=str(refusal))
        return checked

    def _sign(self, checked: _Checked, journalled: Set[_Row]) -> Answer:
        """Sign what holds its (sender, nonce) on disk: this very payload, with us as the one to sign."""
        item, tx = checked.authenticated, checked.tx
        if (tx.sender, tx.nonce, item.examined.parsed.client_hash) not in journalled:
            return Answer(refusal=str(Refused(NOT_JOURNALLED)))
        return Answer(self._pairs[item.sender_shard].sign(checked.message))

    def _forget(self, data: bytes) -> _Checked | None:
        """What is remembered of these very bytes; not any more."""
        return self._checked.pop(data, None)

    def _read(self, data: bytes) -> _Read:
        """The transaction in these bytes. Raises `TransactionError` or `Refused`."""
        tx = from_proto(data)
        if tx.relayer_signature:
            raise Refused(reasons.SIGNER_REFUSED.but("it is signed already"))
        parsed = stages.Parsed(tx, data, stages.hash_of(data), _ASKED)
        return _Read(data, stages.examine(parsed, self._network, self._relayers), signing_message(tx))

    # ---- the journal, read only

    def _remember(self) -> sqlite3.Connection:
        """The journal, which must hold what was acknowledged. Raises `sqlite3.Error` or `MemoryLost`.

        A file that is put in its place is met by a new connection, which compares it with the mark.
        """
        if self._journal is None:
            connection = read_only(self._journal_path)
            try:
                memory.still_holds(connection, self._mark)
            except BaseException:
                connection.close()
                raise
            self._journal = connection
        return self._journal

    def _look_back(self, journal: sqlite3.Connection) -> None:
        """Raise `MemoryLost` if the journal goes no further than it did."""
        sequence = chain.sequence(journal, self._mark.writer)
        if sequence < self._sequence:
            raise MemoryLost(f"the journal went back from commit {self._sequence} to {sequence}. {WHAT_TO_DO}")
        self._sequence = sequence

    def _forget_connection(self) -> None:
        connection, self._journal = self._journal, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _journalled(self, wanted: Sequence[_Run]) -> set[_Row]:
        """What is committed there now and may be signed. Raises `sqlite3.Error`, or `MemoryLost`."""
        journal = self._remember()
        found: set[_Row] = set()
        journal.execute("BEGIN")  # all of one moment; each look by itself would lock the file, and read its pages anew
        try:
            self._look_back(journal)
            for start in range(0, len(wanted), ROWS_AT_ONCE):
                part = wanted[start : start + ROWS_AT_ONCE]
                found.update(journal.execute(_those_of(len(part)), [value for run in part for value in run]))
        finally:
            journal.execute("COMMIT")
        return found


@lru_cache(ROWS_AT_ONCE)
def _those_of(count: int) -> str:
    """The question for the rows of so many `_Run`s that may be signed."""
    return (
        f"SELECT sender, nonce, client_hash FROM (VALUES {', '.join(['(?, ?, ?, ?)'] * count)}) "
        "CROSS JOIN submissions ON sender = column1 AND nonce BETWEEN column2 AND column3 "
        "WHERE relayer = column4 AND state IN ('journalled', 'signed', 'expired')"
    )


def _runs(txs: Sequence[Transaction]) -> list[_Run]:
    """Where these transactions have to be in the journal: those of a batch usually follow each other."""
    runs: list[_Run] = []
    sender, relayer, first, last = b"", b"", 0, -1
    for tx in txs:
        nonce = tx.nonce
        if nonce >= 2**63:  # no row has such a one
            continue
        if nonce == last + 1 and tx.sender == sender and tx.relayer == relayer:
            last = nonce
            continue
        if sender:
            runs.append((sender, first, last, relayer))
        sender, relayer, first, last = tx.sender, tx.relayer, nonce, nonce
    if sender:
        runs.append((sender, first, last, relayer))
    return runs


def _verify(item: _Read) -> _Checked:
    """A transaction with its signatures verified. Raises `Refused`."""
    return _Checked(stages.verify(item.examined, item.message), item.examined.parsed.tx, item.message)


def serve(connection: socket.socket, *, locked: bool = False) -> None:
    """Answer commands until the service closes its end."""
    stream = connection.makefile("rb")
    vault: Vault | None = None
    while (command := _receive(stream)) is not None:
        match command:
            case Start():
                try:
                    vault = _open_vault(command)
                    _send(connection, Ready(vault.relayers, locked or vault.lock()))
                except (keystore.KeyStoreError, policy.PolicyError, ValueError) as error:
                    _send(connection, Failed(str(error)))
            case Work(sign, check) if vault is not None:
                _send(connection, Done(vault.sign_all(sign), vault.check_all(check)))


def _open_vault(start: Start) -> Vault:
    pairs = keystore.load(start.key_files, start.key_env, start.network, start.seeds, start.key_passphrase_file)
    rules = PolicyFile(start.policy_file, Path(start.journal).with_name(policy.KEPT))
    remembered = None
    with contextlib.suppress(sqlite3.Error):  # nothing is signed from a journal that cannot be read
        remembered = meta(Path(start.journal), POLICY)
    rules.begin(remembered)
    return Vault(pairs, start.network, Path(start.journal), Mark(Path(start.mark), start.owner), rules)


def _receive(stream: BinaryIO) -> Command | None:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    if size > MAX_FRAME:
        return None
    body = stream.read(size)
    return command_decoder.decode(body) if len(body) == size else None


def _send(connection: socket.socket, report: Report) -> None:
    connection.sendall(frame(report))


def harden() -> bool:
    """No core dumps, no debugger of the same user, and no memory in a swap file; whether the last succeeded.

    All memory is locked only where there is no limit to it (`ulimit -l unlimited`, or CAP_IPC_LOCK): with a limit, an
    allocation beyond it would fail later on. There the keys alone are locked once they are read.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        return False
    return bool(libc.mlockall(_MCL_CURRENT | _MCL_FUTURE) == 0)


def main() -> None:
    """Entry of the process; its only argument is the file descriptor of its end of the socket pair."""
    locked = harden()
    die_with_parent()
    # Nothing here makes cycles; a full collection every few thousand transactions would only cost time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    # Ctrl-C in a terminal reaches the whole group; the service decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(ConnectionError):
        try:
            serve(connection, locked=locked)  # a service that was killed waits for no answer
        except (sqlite3.Error, MemoryLost) as error:
            sys.exit(f"the journal cannot be read: {error}")  # the service starts another process, which tries again


if __name__ == "__main__":
    main()
