"""The keys of a run, and what their owners sign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from millrace.chain.keys import KeyPair
from millrace.chain.network import NetworkProfile, profile
from millrace.chain.transaction import Transaction, signing_message, to_json

NETWORK: NetworkProfile = profile("documented", chain_id="local")
GAS_PRICE = 10**9
GAS_LIMIT = 100_000


def wallet(shard: int, number: int) -> KeyPair:
    """The `number`-th wallet of a shard, always the same one."""
    seed = 1_000_000 + 1000 * shard + number * 10_000
    while NETWORK.shard_of((pair := KeyPair.from_seed(seed.to_bytes(32, "big"))).public) != shard:
        seed += 1
    return pair


SIGNING, PAYING = 2, 3
"""Numbers of the wallets that have the service sign, which wants an account that holds something, and that pay."""
FUNDED = [wallet(shard, number) for shard in range(NETWORK.shards) for number in (SIGNING, PAYING)]
"""They own something from the first block on."""
RELAYERS = {shard: wallet(shard, 90) for shard in range(NETWORK.shards)}


def transfer(pair: KeyPair, nonce: int, choice: int = 0, *, relayed: bool = True) -> Transaction:
    """A transfer of nothing to somebody of the same shard; each choice is another payload."""
    shard = NETWORK.shard_of(pair.public)
    draft = Transaction(
        nonce=nonce,
        value=0,
        receiver=wallet(shard, 91).public,
        sender=pair.public,
        gas_price=GAS_PRICE,
        gas_limit=GAS_LIMIT + choice,
        chain_id=NETWORK.chain_id,
        relayer=RELAYERS[shard].public if relayed else b"",
    )
    return msgspec.structs.replace(draft, signature=pair.sign(signing_message(draft)))


def as_json(tx: Transaction) -> dict[str, Any]:
    """The transaction object of the public interface."""
    built: dict[str, Any] = msgspec.to_builtins(to_json(tx))
    return built


def write_keys(directory: Path) -> list[str]:
    """PEM files of the relayers' keys."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for shard, pair in RELAYERS.items():
        file = directory / f"shard{shard}.pem"
        file.touch(mode=0o600)
        file.write_text(pair.to_pem())
        files.append(str(file))
    return files
