"""The signing process: holds the relayer's keys and signs what was journalled, nothing else.

It runs as `python -m millrace.relayer.signer FD` on one end of a socket pair. Whatever the service asks, a
signature leaves only for a transaction that names one of our keys as relayer of its sender's shard, that its
sender (and guardian) signed, in which no relayer key is a party, that is within the caps of the policy file,
and whose record is committed in the journal.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sqlite3
import sys
from pathlib import Path

from millrace.chain.keys import KeyPair
from millrace.chain.network import NetworkProfile
from millrace.chain.network import profile as named_profile
from millrace.chain.transaction import (
    Transaction,
    TransactionError,
    from_proto,
    signing_message,
)
from millrace.relayer import keystore, policy, reasons, stages
from millrace.relayer.journal import hash_message
from millrace.relayer.reasons import Refused
from millrace.relayer.signer_wire import (
    HEADER,
    MAX_FRAME,
    Answer,
    Command,
    Failed,
    Ready,
    Report,
    Sign,
    Signatures,
    Start,
    command_decoder,
    frame,
)
from millrace.runtime.process import die_with_parent

_PR_SET_DUMPABLE = 4

NOT_JOURNALLED = reasons.Reason("not in the journal", "not_journalled")


class Vault:
    """The keys and everything that must hold before one of them signs."""

    def __init__(self, pairs: dict[int, KeyPair], network: NetworkProfile, journal: Path, policy_file: str) -> None:
        self._pairs = pairs
        self._network = network
        self._relayers = stages.Relayers({shard: pair.public for shard, pair in pairs.items()})
        self._journal_path = journal
        self._journal: sqlite3.Connection | None = None
        self._policy_file = Path(policy_file) if policy_file else None
        self._policy_time = -1
        self._policy = policy.Policy()

    @property
    def relayers(self) -> dict[int, bytes]:
        """Public keys by shard."""
        return self._relayers.by_shard

    def answer(self, data: bytes) -> Answer:
        """The co-signature of a transaction in protobuf form, or the reason why there is none."""
        try:
            return Answer(signature=self.sign(from_proto(data)))
        except (TransactionError, Refused, policy.PolicyError) as refusal:
            return Answer(refusal=str(refusal))

    def sign(self, tx: Transaction) -> bytes:
        """The co-signature of a transaction. Raises `Refused` or `PolicyError`."""
        if tx.relayer_signature:
            raise Refused(reasons.SIGNER_REFUSED.but("it is signed already"))
        parsed = stages.Parsed.of(tx, stages.Origin("relay", ""))
        authenticated = stages.authenticate(parsed, self._network, self._relayers)
        self._read_policy()
        policy.check_caps(tx, self._policy, self._network)
        message = signing_message(tx)
        if not self._is_journalled(tx, message):
            raise Refused(NOT_JOURNALLED)
        return self._pairs[authenticated.sender_shard].sign(message)

    def _is_journalled(self, tx: Transaction, message: bytes) -> bool:
        """Whether this very payload holds its (sender, nonce) on disk, with us as the one to sign."""
        try:
            if self._journal is None:
                self._journal = sqlite3.connect(f"file:{self._journal_path}?mode=ro", uri=True)
            row = self._journal.execute(
                "SELECT message_hash, relayer FROM submissions "
                "WHERE sender = ? AND nonce = ? AND state IN ('journalled', 'signed', 'expired')",
                (tx.sender, tx.nonce),
            ).fetchone()
        except sqlite3.Error:
            return False
        return row is not None and row == (hash_message(message), tx.relayer)

    def _read_policy(self) -> None:
        """Read the policy file again when it changed. Without a readable policy nothing is signed."""
        if self._policy_file is None:
            return
        try:
            changed = self._policy_file.stat().st_mtime_ns
            if changed != self._policy_time:
                self._policy = policy.loads(self._policy_file.read_text(encoding="utf-8"))
                self._policy_time = changed
        except (OSError, UnicodeDecodeError) as error:
            raise policy.PolicyError("the policy file cannot be read") from error


def serve(connection: socket.socket) -> None:
    """Answer commands until the service closes its end."""
    stream = connection.makefile("rb")
    vault: Vault | None = None
    while (command := _receive(stream.read)) is not None:
        match command:
            case Start():
                try:
                    vault = _open_vault(command)
                    _send(connection, Ready(vault.relayers))
                except (keystore.KeyStoreError, policy.PolicyError, ValueError) as error:
                    _send(connection, Failed(str(error)))
            case Sign(request, transactions) if vault is not None:
                _send(connection, Signatures(request, [vault.answer(item) for item in transactions]))


def _open_vault(start: Start) -> Vault:
    network = named_profile(start.profile, chain_id=start.chain_id)
    pairs = keystore.load(start.key_files, start.key_env, network, os.environ, start.key_passphrase_file)
    for name in start.key_env:
        os.environ.pop(name, None)
    vault = Vault(pairs, network, Path(start.journal), start.policy_file)
    vault._read_policy()
    return vault


def _receive(read: object) -> Command | None:
    assert callable(read)
    header = read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    if size > MAX_FRAME:
        return None
    return command_decoder.decode(read(size))


def _send(connection: socket.socket, report: Report) -> None:
    connection.sendall(frame(report))


def harden() -> None:
    """No core dumps, no debugger of the same user, no memory that outlives the process in a swap file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Entry of the process; its only argument is the file descriptor of its end of the socket pair."""
    harden()
    die_with_parent()
    # Ctrl-C in a terminal reaches the whole group; the service decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
