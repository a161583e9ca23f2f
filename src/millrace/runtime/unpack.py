"""Bodies that come packed, unpacked with a bound: a thousand times as much can be in them."""

from __future__ import annotations

import zlib

GZIP = "gzip"
"""What `unpack` takes, as `Accept-Encoding` and `Content-Encoding` name it."""
_WINDOW = 16 + zlib.MAX_WBITS  # of zlib, with gzip's head and checksum
MOST_MEMBERS = 16
"""What is left is copied for each member, with the GIL held. One is what servers send."""


class UnpackError(ValueError):
    """What came is not what was packed."""


def unpack(packed: bytes, most: int) -> bytes:
    """What gzip packed, `most` bytes of it. Raises `UnpackError`, also where there is more.

    Zlib works without the GIL: in a thread this holds nobody up.
    """
    parts, left = [], most + 1
    for _ in range(MOST_MEMBERS):
        reader = zlib.decompressobj(_WINDOW)
        try:
            parts.append(reader.decompress(packed, left))
        except zlib.error as error:
            raise UnpackError(f"not what gzip packs: {error}") from None
        left -= len(parts[-1])
        if left <= 0:
            raise UnpackError(f"larger than {most} bytes")
        if not reader.eof:
            raise UnpackError("not all that gzip packed")
        packed = reader.unused_data
        if not packed:
            return b"".join(parts)
    raise UnpackError(f"more than {MOST_MEMBERS} parts")
