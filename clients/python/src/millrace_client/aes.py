"""AES-128 in counter mode (FIPS 197, SP 800-38A), for keystore files: a few blocks, on the wallet owner's machine.

libsodium has AES with 256-bit keys only, and a library for six blocks would not fit into the client's 20 MB. It is not
written against an attacker who measures the time that it takes.
"""

from __future__ import annotations


def _double(value: int) -> int:
    return value << 1 ^ (0x11B if value & 0x80 else 0)


def _substitutions() -> list[int]:
    """The S-box: the inverse in GF(2^8), then an affine map. Powers of 3 run through the whole field."""
    powers = [1]
    for _ in range(254):
        powers.append(powers[-1] ^ _double(powers[-1]))
    box = [0x63] * 256
    for exponent, value in enumerate(powers):
        inverse = powers[-exponent % 255]
        spread = inverse | inverse << 8
        box[value] = 0x63 ^ inverse ^ (spread >> 7 ^ spread >> 6 ^ spread >> 5 ^ spread >> 4) & 0xFF
    return box


_BOX = _substitutions()


def _round_keys(key: bytes) -> list[bytes]:
    words = [key[at : at + 4] for at in range(0, 16, 4)]
    constant = 1
    for number in range(4, 44):
        word = words[-1]
        if number % 4 == 0:
            turned = [_BOX[byte] for byte in word[1:] + word[:1]]
            turned[0] ^= constant
            word, constant = bytes(turned), _double(constant)
        words.append(bytes(a ^ b for a, b in zip(word, words[-4], strict=True)))
    return [b"".join(words[at : at + 4]) for at in range(0, 44, 4)]


def _mixed(column: list[int]) -> list[int]:
    every = column[0] ^ column[1] ^ column[2] ^ column[3]
    return [column[i] ^ every ^ _double(column[i] ^ column[(i + 1) % 4]) for i in range(4)]


def _block(keys: list[bytes], block: bytes) -> bytes:
    state = [a ^ b for a, b in zip(block, keys[0], strict=True)]
    for number, key in enumerate(keys[1:], 1):
        state = [_BOX[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]  # substitute, and shift rows
        if number < 10:
            state = [byte for at in range(0, 16, 4) for byte in _mixed(state[at : at + 4])]
        state = [a ^ b for a, b in zip(state, key, strict=True)]
    return bytes(state)


def counter_mode(key: bytes, first: bytes, data: bytes) -> bytes:
    """Data encrypted or decrypted with a 16-byte key and a 16-byte first counter."""
    keys, counter = _round_keys(key), int.from_bytes(first, "big")
    stream = b"".join(
        _block(keys, (counter + number & (1 << 128) - 1).to_bytes(16, "big")) for number in range(-(-len(data) // 16))
    )
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))
