"""Which shard an address lives in: the documented rule and the rule of live nodes."""

from __future__ import annotations

METACHAIN = 0xFFFFFFFF
ALL_SHARDS = 0xFFFFFFF0


def shard_by_modulo(pubkey: bytes, shards: int = 3) -> int:
    """The documented rule: the last byte modulo the number of shards."""
    return pubkey[-1] % shards


def shard_by_mask(pubkey: bytes, shards: int = 3) -> int:
    """The rule of live nodes (up to 256 shards): the low bits of the last byte, system contracts on the metachain.

    A value beyond the last shard drops its highest bit. A contract address whose last byte is 0xff and whose
    bytes 10 to 24 are zero is a system contract.
    """
    last = pubkey[-1]
    if last == 0xFF and pubkey[:8] == bytes(8) and pubkey[10:25] == bytes(15):
        return METACHAIN
    bits = (shards - 1).bit_length()
    shard = last & (1 << bits) - 1
    return shard if shard < shards else last & (1 << bits - 1) - 1
