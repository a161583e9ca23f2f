"""The validators of each shard: keys shaped like BLS keys, leaders in turn, ratings."""

from __future__ import annotations

from hashlib import sha512

from millrace.chain.shard import METACHAIN


class Validators:
    """A fixed set per shard and metachain, derived from the seed."""

    def __init__(self, seed: int, shards: int, per_shard: int) -> None:
        self.by_shard: dict[int, list[bytes]] = {
            shard: [_key(seed, shard, index) for index in range(per_shard)] for shard in [*range(shards), METACHAIN]
        }

    def leader(self, shard: int, round_: int) -> tuple[int, bytes]:
        """Index and key of the leader of a round."""
        keys = self.by_shard[shard]
        index = round_ % len(keys)
        return index, keys[index]


def _key(seed: int, shard: int, index: int) -> bytes:
    """96 bytes, the size of a BLS public key."""
    label = f"millrace/validator/{seed}/{shard}/{index}".encode()
    return sha512(label).digest() + sha512(label + b"/2").digest()[:32]
