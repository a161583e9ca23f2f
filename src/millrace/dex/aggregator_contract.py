"""The aggregator contract's call: instructions, their six numbers, and the transaction data around them.

Endpoint `xo` takes, in order: minimum output, output token, referral id, a counted list of tokens, of
addresses and of amounts, then the instructions, six arguments each. Every argument is top-encoded:
numbers as minimal big-endian bytes, zero as the empty string. Format source: the public contract
`XOXNO/rs-aggregator`; see docs/pools.md.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from millrace.chain import abi, address, call
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS

ENDPOINT = "xo"
CONTRACT = address.decode("erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva")
WRAPPER = bytes.fromhex("00000000000000000500be4eba4b2eccbcf1703bbd6b2e0d1351430e769f5483")
XEXCHANGE_ROUTER = bytes.fromhex("0000000000000000050006b46b15091d730e5f3b8c87c3e9c8a5d818c7ba5483")
ONEDEX_ROUTER = bytes.fromhex("0000000000000000050000b4c094947e427d79931a8bad81316b797d238cdb3f")

EGLD_INDEX = 254
"""Token index of EGLD."""
NONE_INDEX = 255
"""Token index of nothing; as the low byte of an address index: found by the contract."""
AUTO = 255

ALL = 0
PREVIOUS = 1
FIXED = 2
PPM = 128
MILLION = 1_000_000

MAX_TOKENS = 254
MAX_FIXED = 126
MAX_PPM = 128
MOST_DEPOSITED = 3
"""Tokens that an instruction can name which deposits into a stable or crypto pool, however many the pool has."""
MAX_AMOUNT_BYTES = 64
MAX_INSTRUCTIONS = 1024


class ProgramError(ValueError):
    """A program the contract would refuse, or arguments that are no program; the text says which part."""


class Action(IntEnum):
    """First number of an instruction."""

    XEXCHANGE_SWAP = 0
    XEXCHANGE_ADD = 1
    XEXCHANGE_REMOVE = 2
    ASH_STABLE_SWAP = 3
    ASH_STABLE_ADD = 4
    ASH_STABLE_REMOVE = 5
    ASH_CRYPTO_SWAP = 6
    ASH_CRYPTO_ADD = 7
    ASH_CRYPTO_REMOVE = 8
    ONEDEX_SWAP = 9
    ONEDEX_ADD = 10
    ONEDEX_REMOVE = 11
    JEX_SWAP = 12
    JEX_ADD = 13
    JEX_REMOVE = 14
    JEX_STABLE_SWAP = 15
    JEX_STABLE_ADD = 16
    JEX_STABLE_REMOVE = 17
    WRAP = 18
    UNWRAP = 19
    XOXNO_STAKE = 20
    LXOXNO_STAKE = 21
    HATOM_STAKE = 22
    HATOM_REDEEM = 23
    HATOM_SUPPLY = 24


_LAST_ACTION = int(Action.HATOM_SUPPLY)
NAMES_OUTPUT = frozenset(
    {
        Action.XEXCHANGE_SWAP,
        Action.ASH_STABLE_SWAP,
        Action.ONEDEX_SWAP,
        Action.JEX_STABLE_SWAP,
        Action.HATOM_SUPPLY,
    }
)
"""Layout [action, out token, in token, mode, 0, w]."""
SHARED_MODE_ADD = frozenset({Action.ASH_STABLE_ADD, Action.ASH_CRYPTO_ADD, Action.JEX_STABLE_ADD})
"""Layout [action, token, token, token or 255, shared mode, w]."""
COUNTED_REMOVE = frozenset({Action.ASH_STABLE_REMOVE, Action.ASH_CRYPTO_REMOVE, Action.JEX_STABLE_REMOVE})
"""Layout [action, number of outputs, LP token, mode, 0, w]."""
NEEDS_ADDRESS = frozenset(
    {
        Action.XEXCHANGE_REMOVE,
        Action.ASH_STABLE_SWAP,
        Action.ASH_STABLE_ADD,
        Action.ASH_STABLE_REMOVE,
        Action.ASH_CRYPTO_SWAP,
        Action.ASH_CRYPTO_ADD,
        Action.ASH_CRYPTO_REMOVE,
        Action.JEX_SWAP,
        Action.JEX_ADD,
        Action.JEX_REMOVE,
        Action.JEX_STABLE_SWAP,
        Action.JEX_STABLE_ADD,
        Action.JEX_STABLE_REMOVE,
    }
)
"""Actions whose pool the contract cannot find by itself: w is an index into the addresses."""


class Instruction(NamedTuple):
    """Six numbers: five bytes and a 16-bit word. What b1 to b4 mean depends on the action."""

    action: int
    b1: int
    b2: int
    b3: int
    b4: int
    w: int


class Input(NamedTuple):
    """One amount an instruction takes out of the vault: token index and mode byte."""

    token: int
    mode: int


class Program(msgspec.Struct, frozen=True):
    """One call of the contract. `token_out` is an index into `tokens`, or 254 for EGLD."""

    tokens: tuple[str, ...]
    addresses: tuple[bytes, ...]
    amounts: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    min_amount_out: int
    token_out: int
    referral_id: int = 0


def fixed(index: int) -> int:
    """Mode byte: exactly `amounts[index]`."""
    if not 0 <= index < MAX_FIXED:
        raise ProgramError(f"a fixed amount must be one of the first {MAX_FIXED} amounts, not {index}")
    return FIXED + index


def ppm(index: int) -> int:
    """Mode byte: `amounts[index]` parts per million of the vault's balance."""
    if not 0 <= index < MAX_PPM:
        raise ProgramError(f"a ppm value must be one of the first {MAX_PPM} amounts, not {index}")
    return PPM + index


@lru_cache(maxsize=8192)  # most plans are made of the same few indices
def swap(action: Action, token_in: int, token_out: int, mode: int, w: int = AUTO) -> Instruction:
    """A swap on any exchange, a wrap or an unwrap. Token arguments are indices."""
    if action in NAMES_OUTPUT:
        return Instruction(action, token_out, token_in, mode, 0, w)
    return Instruction(action, token_in, mode, NONE_INDEX, 0, w)


def add(action: Action, tokens: Sequence[int], mode: int, w: int = AUTO) -> Instruction:
    """A deposit in pool order, one mode for all: of two tokens, or of one to three into a stable or crypto pool.

    For OneDex `w` is the pair id. Raises `ProgramError` for more tokens than that.
    """
    if action in SHARED_MODE_ADD:
        if len(tokens) > MOST_DEPOSITED:
            raise ProgramError(f"a deposit of {len(tokens)} tokens: at most {MOST_DEPOSITED}")
        first, second, third = (*tokens, NONE_INDEX, NONE_INDEX)[:3]
        return Instruction(action, first, second, third, mode, w)
    first, second = tokens
    if action == Action.ONEDEX_ADD:
        return Instruction(action, first, second, mode, 0, w)
    return Instruction(action, first, mode, second, mode, w)


def remove(action: Action, lp_token: int, mode: int, outputs: int, w: int = AUTO) -> Instruction:
    """A withdrawal of `outputs` tokens for LP units."""
    if action in COUNTED_REMOVE:
        return Instruction(action, outputs, lp_token, mode, 0, w)
    return Instruction(action, lp_token, mode, NONE_INDEX, 0, w)


def inputs(instruction: Instruction) -> tuple[Input, ...]:
    """What the instruction withdraws from the vault, in order. Empty: the previous result, whatever it is."""
    action, b1, b2, b3, b4, _ = instruction
    if action in SHARED_MODE_ADD:
        return tuple([Input(b1, b4)] + [Input(token, b4) for token in (b2, b3) if token != NONE_INDEX])
    if action == Action.ONEDEX_ADD:
        return (Input(b1, b3), Input(b2, b3))
    first = Input(b2, b3) if action in NAMES_OUTPUT or action in COUNTED_REMOVE else Input(b1, b2)
    if first == (NONE_INDEX, PREVIOUS):
        return ()
    if action in NAMES_OUTPUT or action in COUNTED_REMOVE or b3 == NONE_INDEX:
        return (first,)
    return (first, Input(b3, b4))


def check(program: Program) -> None:
    """Raise `ProgramError` unless every number fits its argument and every index points at something."""
    _checked(program)


def _checked(program: Program) -> "list[_Needs]":
    """What the program's instructions need, all of which is there. Raises `ProgramError`."""
    tokens, addresses, amounts = len(program.tokens), len(program.addresses), len(program.amounts)
    if tokens > MAX_TOKENS:
        raise ProgramError(f"{tokens} tokens: at most {MAX_TOKENS}")
    if not {32}.issuperset(map(len, program.addresses)):
        raise ProgramError("an address must have 32 bytes")
    if len(program.instructions) > MAX_INSTRUCTIONS:
        raise ProgramError(f"{len(program.instructions)} instructions: at most {MAX_INSTRUCTIONS}")
    if min((program.min_amount_out, program.referral_id, *program.amounts)) < 0:
        raise ProgramError("amounts must not be negative")
    if program.referral_id >= 1 << 64:
        raise ProgramError("the referral id must fit 64 bits")
    if program.token_out != EGLD_INDEX and not 0 <= program.token_out < tokens:
        raise ProgramError(f"token_out: token index {program.token_out} of {tokens} tokens")
    found = []
    for position, instruction in enumerate(program.instructions):
        try:
            needs = _needs(instruction)
        except ProgramError as error:
            raise ProgramError(f"instruction {position}: {error}") from None
        of_tokens, of_amounts, of_addresses, parts, _ = needs
        if of_tokens > tokens:
            raise ProgramError(f"instruction {position}: token index {of_tokens - 1} of {tokens} tokens")
        if of_amounts > amounts:
            raise ProgramError(f"instruction {position}: amount index {of_amounts - 1} of {amounts} amounts")
        if of_addresses > addresses:
            raise ProgramError(f"instruction {position}: address index {of_addresses - 1} of {addresses} addresses")
        if parts and max([program.amounts[index] for index in parts]) > MILLION:
            raise ProgramError(f"instruction {position}: PPM value exceeds 1,000,000 (100%)")
        found.append(needs)
    return found


class _Needs(NamedTuple):
    """What an instruction needs of the tables: how long each must be at least, and which amounts are ppm values."""

    tokens: int
    amounts: int
    addresses: int
    parts: tuple[int, ...]
    text: str
    """Its six arguments in hex, joined with `@`."""


@lru_cache(maxsize=8192)  # as of `swap`
def _needs(instruction: Instruction) -> _Needs:
    """Raises `ProgramError` for numbers that do not fit their arguments or mean nothing."""
    action, b1, *_, w = instruction
    if not 0 <= action <= _LAST_ACTION:
        raise ProgramError(f"Invalid action type: {action}")
    if min(instruction) < 0 or max(instruction[:5]) > 255 or w >= 1 << 16:
        raise ProgramError("a number does not fit its argument")
    taken = inputs(instruction)
    used = [item.token for item in taken] + ([b1] if action in NAMES_OUTPUT else [])
    parts = tuple(item.mode - PPM for item in taken if item.mode >= PPM)
    fixed_amounts = [item.mode - FIXED for item in taken if item.mode < PPM]
    if action in NEEDS_ADDRESS and w % 256 == AUTO:
        raise ProgramError(f"address index {w} means the contract finds the pool")
    return _Needs(
        tokens=1 + max((token for token in used if token != EGLD_INDEX), default=-1),
        amounts=1 + max((*parts, *fixed_amounts), default=-1),
        addresses=w + 1 if action in NEEDS_ADDRESS else 0,
        parts=parts,
        text="@".join([*(_BYTES[number] for number in instruction[:5]), _hex(w)]),
    )


def encode_arguments(program: Program) -> list[bytes]:
    """The call's arguments after the function name. Raises `ProgramError`."""
    return [bytes.fromhex(argument) for argument in _text(program).split("@")]


def _text(program: Program) -> str:
    """The call's arguments in hex, joined with `@`. Raises `ProgramError`."""
    instructions = _checked(program)
    parts = [
        _hex(program.min_amount_out),
        _hex(program.token_out),
        _hex(program.referral_id),
        _hex(len(program.tokens)),
    ]
    parts += [token.encode("ascii").hex() for token in program.tokens]
    parts.append(_hex(len(program.addresses)))
    parts += [item.hex() for item in program.addresses]
    parts.append(_hex(len(program.amounts)))
    parts += [_hex(amount) for amount in program.amounts]
    parts += [needs.text for needs in instructions]
    return "@".join(parts)


_BYTES = [abi.top_uint(number).hex() for number in range(256)]


def _hex(number: int) -> str:
    """A top-encoded number in hex: an even number of digits, none for zero."""
    if number < 256:
        return _BYTES[number]
    text = f"{number:x}"
    return "0" + text if len(text) % 2 else text


def decode_arguments(arguments: Sequence[bytes]) -> Program:
    """The program of a call, or `ProgramError`. Leading zero bytes in numbers are accepted."""
    reader = _Reader(arguments)
    min_amount_out = reader.number("minAmountOut", MAX_AMOUNT_BYTES)
    token_out = reader.number("tokenOut", 1)
    referral_id = reader.number("referralId", 8)
    tokens = tuple(_ascii(item) for item in reader.counted("tokens"))
    addresses = tuple(reader.counted("addresses"))
    amounts = tuple(_parsed(item, "amounts", MAX_AMOUNT_BYTES) for item in reader.counted("amounts"))
    rest = reader.rest()
    if len(rest) % 6:
        raise ProgramError(f"{len(rest)} instruction arguments: not a multiple of 6")
    instructions = tuple(_instruction(rest[k : k + 6]) for k in range(0, len(rest), 6))
    program = Program(tokens, addresses, amounts, instructions, min_amount_out, token_out, referral_id)
    check(program)
    return program


def tx_data(program: Program, token_in: str, amount_in: int) -> bytes:
    """The transaction's `data`. EGLD goes as the transaction's value, a token by `ESDTTransfer`."""
    if token_in in (NATIVE, NATIVE_IN_TRANSFERS):
        return f"{ENDPOINT}@{_text(program)}".encode("ascii")
    return call.esdt_transfer(token_in, amount_in, ENDPOINT) + f"@{_text(program)}".encode("ascii")


class _Reader:
    """Arguments, taken one by one."""

    def __init__(self, arguments: Sequence[bytes]) -> None:
        self._arguments = arguments
        self._next = 0

    def take(self, what: str) -> bytes:
        if self._next >= len(self._arguments):
            raise ProgramError(f"argument {what} is missing")
        self._next += 1
        return self._arguments[self._next - 1]

    def number(self, what: str, size: int) -> int:
        return _parsed(self.take(what), what, size)

    def counted(self, what: str) -> list[bytes]:
        count = self.number(f"count of {what}", 4)
        if count > len(self._arguments) - self._next:
            raise ProgramError(f"{count} {what} announced, {len(self._arguments) - self._next} arguments left")
        return [self.take(what) for _ in range(count)]

    def rest(self) -> Sequence[bytes]:
        return self._arguments[self._next :]


def _parsed(data: bytes, what: str, size: int) -> int:
    try:
        return abi.decode_uint(data, size)
    except abi.AbiError:
        raise ProgramError(f"argument {what} is longer than {size} bytes") from None


def _instruction(numbers: Sequence[bytes]) -> Instruction:
    action, b1, b2, b3, b4 = (_parsed(number, "instructions", 1) for number in numbers[:5])
    return Instruction(action, b1, b2, b3, b4, _parsed(numbers[5], "instructions", 2))


def _ascii(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise ProgramError("a token identifier is not ASCII") from None
