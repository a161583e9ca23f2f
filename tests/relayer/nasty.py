"""Bad input for the relayer: values and structures nobody should send, and bytes that are hardly messages at all."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

from millrace.chain import address

_WORD = address.encode(bytes(range(32)))

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64 - 1, 2**64, 10**300, 0.5, -0.0, 1e300,
    "", " ", "0", "-0", "+1", "-1", "01", "00", "1.0", "1e3", "0x10", " 1", "1 ", "1_000", "１", "٣", "9" * 400,
    "a" * 300, "x" * 100_000, "\0", "\u202e", "\ud800", "é" * 200, "null", "{}", "../../etc/passwd", "' OR 1=1 --",
    "<script>", "%s%n", "${jndi:ldap://x}", [], {}, [[]], [None], {"": None}, {"__proto__": 1},
    _WORD.upper(), _WORD[:-1], _WORD + "q", _WORD[:-1] + "b", _WORD.capitalize(), "erd1", "1", "addr1" + _WORD[4:],
    "0" * 63, "0" * 64, "0" * 65, "g" * 64, "AB" * 32, "0x" + "0" * 62, "ab" * 64, "AB" * 64, "00" * 65,
    "subscribe", "unsubscribe", "relay", "broadcast", "shutdown", "gasStats", "networkStats", "accounts",
    "address/" + _WORD, "address/" + _WORD.upper(), "address/", "address/erd1", "tx-status/" + "0" * 64,
    "tx-status/" + "0" * 63, "tx-status/" + "A" * 64, "tx-status/", "tx-status", "gasstats", "*", "#", "gasStats/0",
    "AAAA", "AAA", "A===", "====", "AA AA", "-_-_", "QUJD", "QUJD\n",
]  # fmt: skip

KEYS = [
    "action", "topic", "topics", "tx", "txs", "requestId", "autoSubscribe", "transactions", "nonce", "value",
    "receiver", "sender", "gasPrice", "gasLimit", "data", "chainID", "version", "options", "signature", "guardian",
    "guardianSignature", "relayer", "relayerSignature", "senderUsername", "receiverUsername", "", "x", "ACTION",
]  # fmt: skip

NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-0", b"00", b"+1", b"0x1", b"1.", b".5", b"9" * 5000, b"1e-5"]


def nasty(chance: random.Random) -> Any:
    """One of the values, as an object of its own."""
    return copy.deepcopy(chance.choice(VALUES))


def mutated(chance: random.Random, value: Any) -> Any:
    """The value with one to three of its parts replaced, removed, added or moved."""
    value = json.loads(json.dumps(value))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holders = list(_holders(value))
        if not holders:
            return nasty(chance)
        holder = chance.choice(holders)
        if isinstance(holder, dict):
            _spoil_object(chance, holder)
        else:
            _spoil_list(chance, holder)
    return value


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _spoil_object(chance: random.Random, holder: dict[str, Any]) -> None:
    key = chance.choice(list(holder))
    match chance.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[chance.choice(KEYS)] = nasty(chance)
        case 2:
            holder[chance.choice(KEYS)] = holder.pop(key)
        case 3 if isinstance(holder[key], str) and holder[key]:
            at = chance.randrange(len(holder[key]))
            holder[key] = holder[key][:at] + chance.choice(("", "0", "Z", "\0", " ", "é")) + holder[key][at + 1 :]
        case 4 if isinstance(holder[key], int):
            holder[key] = chance.choice((holder[key] + 1, -holder[key], str(holder[key]), holder[key] * 10**18))
        case _:
            holder[key] = nasty(chance)


def _spoil_list(chance: random.Random, holder: list[Any]) -> None:
    at = chance.randrange(len(holder))
    match chance.randrange(4):
        case 0:
            del holder[at]
        case 1:
            holder.insert(at, nasty(chance))
        case 2:
            holder.append(holder[at])
        case _:
            holder[at] = nasty(chance)


def spoilt(chance: random.Random, data: bytes) -> bytes:
    """The text of a message with its bytes spoilt: flipped, cut, doubled, deep, not UTF-8, keys twice."""
    at = chance.randrange(len(data)) if data else 0
    match chance.randrange(12):
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        case 3:
            return data[:at] + chance.randbytes(chance.randrange(1, 40)) + data[at:]
        case 4:
            return data[:at] + chance.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5", b"\0")) + data[at:]
        case 5:
            return data + data
        case 6:  # a key twice
            return data[:-1] + b',"' + chance.choice(KEYS).encode() + b'":1' + data[-1:]
        case 7:
            deep = chance.choice((10, 500, 1_500, 20_000, 200_000))
            opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
            return data[:-1] + b',"deep":' + opening * deep + b"1" + closing * chance.choice((0, deep)) + b"}"
        case 8:
            return data.replace(b":1", b":" + chance.choice(NUMBERS))
        case 9:
            return data[:-1] + b',"x":' + chance.choice(NUMBERS) + b"}"
        case 10:
            return b" \t\r\n" * chance.randrange(1_000) + data
        case _:
            return chance.randbytes(chance.randrange(2_000))


def broken_frames(chance: random.Random, message: bytes) -> bytes:
    """Bytes after the handshake that are no proper frames of a client, or only the half of one."""
    good = masked(0x81, message)
    match chance.randrange(12):
        case 0:
            return good[: chance.randrange(1, len(good))]  # half a frame, and then nothing
        case 1:
            return bytes((0x81, len(message[:100]))) + message[:100]  # not masked
        case 2:
            return masked(0x80 | chance.choice((3, 4, 5, 6, 7, 11, 12, 15)), message[:100])  # no such opcode
        case 3:
            return masked(0x81 | chance.choice((0x40, 0x20, 0x10)), message)  # bits nobody agreed on
        case 4:
            return masked(0x80, message)  # goes on with nothing
        case 5:
            return masked(0x01, message) + masked(0x81, message)  # a message within a message
        case 6:
            return masked(0x89, b"p" * 126)  # a ping that is too long
        case 7:
            return masked(0x09, b"p")  # a ping in parts
        case 8:
            return masked(
                0x88, chance.choice((b"", b"\x03", b"\0\0", b"\x03\xe8\xff", b"\x27\x10", b"\xff\xff" + b"x" * 123))
            )
        case 9:
            return (
                struct.pack("!BBQ", 0x81, 0xFF, chance.choice((2**63, 2**62, 2**40, 5 * 2**20))) + b"mask" + b"x" * 100
            )
        case 10:
            return masked(0x01, message[: len(message) // 2]) + masked(0x00, b"") * chance.randrange(1_000)
        case _:
            return chance.randbytes(chance.randrange(1, 4_000))


def masked(first: int, payload: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A frame as clients send it; `first` holds its opcode and bits."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, 0xFE, size)
    else:
        head = struct.pack("!BBQ", first, 0xFF, size)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def broken_requests(chance: random.Random) -> bytes:
    """Bytes sent to an HTTP port that are no request, or a strange one."""
    upgrade = b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    match chance.randrange(9):
        case 0:
            return chance.randbytes(chance.randrange(1, 3_000))
        case 1:
            return b"GET " + b"/" * chance.choice((10, 9_000, 20_000)) + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        case 2:
            return upgrade + b"\r\n"  # no key
        case 3:
            return upgrade + b"Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        case 4:
            return upgrade + b"X: " + b"y" * chance.choice((100, 20_000, 200_000)) + b"\r\n\r\n"
        case 5:
            return upgrade[: chance.randrange(len(upgrade))]
        case 6:
            return (
                b"POST /v1/sign HTTP/1.1\r\nHost: x\r\nContent-Length: "
                + chance.choice((b"-1", b"1e9", b"99999999999999999999", b"5, 6", b""))
                + b"\r\nContent-Type: application/json\r\n\r\n{}"
            )
        case 7:
            return b"POST /v1/sign HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chance.choice(
                (b"ZZ\r\n", b"-5\r\nx\r\n", b"ffffffffffffffff\r\nx", b"2\r\n{}\r\n0\r\n\r\nGET / HTTP/9.9\r\n\r\n")
            )
        case _:
            return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500)  # TLS where none is spoken
