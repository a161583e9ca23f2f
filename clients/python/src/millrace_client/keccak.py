"""Keccak-256 with the original padding, which `hashlib` does not have (its SHA3 pads otherwise).

Only transactions with the hash-signed option need it; a library for one hash would double the installed bytes.
"""

from __future__ import annotations

_RATE = 136  # bytes taken at once: 1600 bits less twice the 256 of the digest
_MASK = (1 << 64) - 1


def _constants() -> tuple[list[int], list[tuple[int, int, int]]]:
    """Round constants (a shift register, Keccak reference section 1.2), and the walk of rho and pi."""
    register, rounds = 1, []
    for _ in range(24):
        constant = 0
        for power in range(7):
            if register & 1:
                constant |= 1 << (1 << power) - 1
            register = register << 1 ^ (0x171 if register >> 7 else 0)
        rounds.append(constant)
    walk, x, y = [], 1, 0
    for step in range(24):
        x, y = y, (2 * x + 3 * y) % 5
        walk.append((x, y, (step + 1) * (step + 2) // 2 % 64))
    return rounds, walk


_ROUNDS, _WALK = _constants()


def _turn(lane: int, by: int) -> int:
    return (lane << by | lane >> 64 - by) & _MASK if by else lane


def _permute(lanes: list[list[int]]) -> None:
    for constant in _ROUNDS:
        columns = [lanes[x][0] ^ lanes[x][1] ^ lanes[x][2] ^ lanes[x][3] ^ lanes[x][4] for x in range(5)]
        for x in range(5):
            parity = columns[x - 1] ^ _turn(columns[(x + 1) % 5], 1)
            for y in range(5):
                lanes[x][y] ^= parity
        moved = lanes[1][0]
        for x, y, by in _WALK:
            lanes[x][y], moved = _turn(moved, by), lanes[x][y]
        for y in range(5):
            row = [lanes[x][y] for x in range(5)]
            for x in range(5):
                lanes[x][y] = row[x] ^ ~row[(x + 1) % 5] & row[(x + 2) % 5] & _MASK
        lanes[0][0] ^= constant


def keccak256(data: bytes) -> bytes:
    """The 32-byte digest."""
    padded = bytearray(data + b"\1" + bytes(-(len(data) + 1) % _RATE))
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for start in range(0, len(padded), _RATE):
        for number in range(_RATE // 8):
            at = start + 8 * number
            lanes[number % 5][number // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        _permute(lanes)
    return b"".join(lanes[x][0].to_bytes(8, "little") for x in range(4))
