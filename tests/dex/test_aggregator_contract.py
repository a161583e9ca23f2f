"""The aggregator contract's arguments: against a third-party codec, there and back, and every limit."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multiversx_sdk.abi import (
    AddressValue,
    BigUIntValue,
    CountedVariadicValues,
    MultiValue,
    Serializer,
    TokenIdentifierValue,
    U8Value,
    U16Value,
    U64Value,
    VariadicValues,
)

from millrace.chain import call
from millrace.dex.aggregator_contract import (
    ALL,
    AUTO,
    EGLD_INDEX,
    NEEDS_ADDRESS,
    NONE_INDEX,
    PREVIOUS,
    SHARED_MODE_ADD,
    Action,
    Input,
    Instruction,
    Program,
    ProgramError,
    add,
    check,
    decode_arguments,
    encode_arguments,
    fixed,
    inputs,
    ppm,
    remove,
    swap,
    tx_data,
)

POOL = bytes(8) + b"\x05\x00" + bytes(20) + b"\x54\x83"
TOKENS = ("USDC-c76f1f", "VICTOR-ae1c2d", "MEX-455c57", "WEGLD-bd4d79")


def three_hops() -> Program:
    """A chain of a kind seen on mainnet: two xExchange hops, then a JEX pair, each on the previous result."""
    return Program(
        tokens=TOKENS,
        addresses=(POOL,),
        amounts=(100_000,),
        instructions=(
            swap(Action.XEXCHANGE_SWAP, 0, 1, fixed(0)),
            swap(Action.XEXCHANGE_SWAP, NONE_INDEX, 2, PREVIOUS),
            swap(Action.JEX_SWAP, NONE_INDEX, 3, PREVIOUS, 0),
        ),
        min_amount_out=35_868_830_660_804_988,
        token_out=3,
    )


def split() -> Program:
    """A split with an unwrap at the end: ppm, the rest, everything merged."""
    return Program(
        tokens=("USDC-c76f1f", "WEGLD-bd4d79"),
        addresses=(POOL, bytes(31) + b"\x01"),
        amounts=(600_000,),
        instructions=(
            swap(Action.ONEDEX_SWAP, 0, 1, ppm(0)),
            swap(Action.JEX_STABLE_SWAP, 0, 1, ALL, 1),
            swap(Action.UNWRAP, 1, EGLD_INDEX, ALL),
        ),
        min_amount_out=0x05D4AC8274388907,
        token_out=EGLD_INDEX,
        referral_id=7,
    )


def prototypes() -> list[object]:
    """The call's inputs in the third-party codec's words."""
    return [
        BigUIntValue(),
        U8Value(),
        U64Value(),
        CountedVariadicValues(item_creator=TokenIdentifierValue),
        CountedVariadicValues(item_creator=AddressValue),
        CountedVariadicValues(item_creator=BigUIntValue),
        VariadicValues(
            item_creator=lambda: MultiValue([U8Value(), U8Value(), U8Value(), U8Value(), U8Value(), U16Value()])
        ),
    ]


def foreign_values(program: Program) -> list[object]:
    return [
        BigUIntValue(program.min_amount_out),
        U8Value(program.token_out),
        U64Value(program.referral_id),
        CountedVariadicValues([TokenIdentifierValue(token) for token in program.tokens]),
        CountedVariadicValues([AddressValue(item) for item in program.addresses]),
        CountedVariadicValues([BigUIntValue(amount) for amount in program.amounts]),
        VariadicValues(
            [MultiValue([*(U8Value(n) for n in step[:5]), U16Value(step.w)]) for step in program.instructions]
        ),
    ]


def with_foreign_codec(program: Program) -> list[bytes]:
    return Serializer().serialize_to_parts(foreign_values(program))


def read_by_foreign_codec(arguments: list[bytes]) -> Program:
    values = prototypes()
    Serializer().deserialize_parts(arguments, values)
    minimum, token_out, referral, tokens, addresses, amounts, steps = values
    return Program(
        tokens=tuple(item.value for item in tokens.items),
        addresses=tuple(bytes(item.value) for item in addresses.items),
        amounts=tuple(item.value for item in amounts.items),
        instructions=tuple(Instruction(*(number.value for number in step.items)) for step in steps.items),
        min_amount_out=minimum.value,
        token_out=token_out.value,
        referral_id=referral.value,
    )


PROGRAMS = st.sampled_from((three_hops(), split()))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any program that passes the checks."""
    tokens = draw(st.lists(st.sampled_from([f"TOK{k}-{k:06x}" for k in range(300)]), max_size=5, unique=True))
    addresses = draw(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
    amounts = draw(st.lists(st.integers(0, 1_000_000), min_size=1, max_size=3))
    token = st.sampled_from([*range(len(tokens)), EGLD_INDEX])
    mode = st.sampled_from([ALL, PREVIOUS, *map(fixed, range(len(amounts))), *map(ppm, range(len(amounts)))])
    steps = []
    for _ in range(draw(st.integers(0, 6))):
        action = draw(st.sampled_from(Action))
        w = draw(st.integers(0, len(addresses) - 1)) if action in NEEDS_ADDRESS else AUTO
        steps.append(Instruction(action, draw(token), draw(token), draw(token), draw(mode), w))
    program = Program(
        tuple(tokens),
        tuple(addresses),
        tuple(amounts),
        tuple(steps),
        draw(st.integers(0, 10**60)),
        draw(token),
        draw(st.integers(0, 2**64 - 1)),
    )
    try:
        check(program)
    except ProgramError:  # a token drawn where the layout has a mode
        return msgspec.structs.replace(program, instructions=())
    return program


@given(programs() | PROGRAMS)
@settings(max_examples=200, deadline=None)
def test_the_third_party_codec_agrees(program: Program) -> None:
    """Our arguments are the codec's, byte for byte, and the codec reads our program back."""
    arguments = encode_arguments(program)
    assert arguments == with_foreign_codec(program)
    assert read_by_foreign_codec(arguments) == program
    assert decode_arguments(arguments) == program


@given(programs() | PROGRAMS)
@settings(max_examples=100, deadline=None)
def test_numbers_with_leading_zeros_mean_the_same(program: Program) -> None:
    """Clients write `00` for zero and pad numbers; the program is the same."""
    arguments = encode_arguments(program)
    numbers = {0, 1, 2, 3}
    position = 4 + len(program.tokens)
    numbers.add(position)
    position += 1 + len(program.addresses)
    numbers |= set(range(position, len(arguments)))
    padded = [b"\0" + item if k in numbers else item for k, item in enumerate(arguments)]
    assert decode_arguments(padded) == program


def test_text_of_a_token_swap() -> None:
    """A token goes along by ESDTTransfer; zero is nothing between two @."""
    text = tx_data(three_hops(), "USDC-c76f1f", 100_000).decode()
    assert text == (
        "ESDTTransfer@555344432d633736663166@0186a0@786f@7f6e82ee0bc17c@03@"
        "@04@555344432d633736663166@564943544f522d616531633264@4d45582d343535633537@5745474c442d626434643739"
        f"@01@{POOL.hex()}@01@0186a0"
        "@@01@@02@@ff"
        "@@02@ff@01@@ff"
        "@0c@ff@01@ff@@"
    )
    parsed = call.parse(text.encode())
    assert decode_arguments(parsed.args[3:]) == three_hops()


def test_text_of_an_egld_swap() -> None:
    """EGLD is the transaction's value, so the data is the call alone; an output in EGLD is index fe."""
    data = tx_data(split(), "EGLD", 10**18)
    assert data.startswith(b"xo@05d4ac8274388907@fe@07@02@")
    assert data == tx_data(split(), "EGLD-000000", 10**18)


LAYOUTS = [
    (swap(Action.XEXCHANGE_SWAP, 1, 2, 3), (0, 2, 1, 3, 0, 255), (Input(1, 3),)),
    (swap(Action.ASH_STABLE_SWAP, 1, 2, 0, 4), (3, 2, 1, 0, 0, 4), (Input(1, 0),)),
    (swap(Action.ONEDEX_SWAP, 1, 2, 128), (9, 2, 1, 128, 0, 255), (Input(1, 128),)),
    (swap(Action.JEX_STABLE_SWAP, 1, 2, 0, 4), (15, 2, 1, 0, 0, 4), (Input(1, 0),)),
    (swap(Action.ASH_CRYPTO_SWAP, 1, 2, 0, 4), (6, 1, 0, 255, 0, 4), (Input(1, 0),)),
    (swap(Action.JEX_SWAP, 1, 2, 0, 4), (12, 1, 0, 255, 0, 4), (Input(1, 0),)),
    (swap(Action.WRAP, 254, 1, 0), (18, 254, 0, 255, 0, 255), (Input(254, 0),)),
    (swap(Action.UNWRAP, 1, 254, 0), (19, 1, 0, 255, 0, 255), (Input(1, 0),)),
    (add(Action.XEXCHANGE_ADD, (1, 2), 0), (1, 1, 0, 2, 0, 255), (Input(1, 0), Input(2, 0))),
    (add(Action.JEX_ADD, (1, 2), 0, 4), (13, 1, 0, 2, 0, 4), (Input(1, 0), Input(2, 0))),
    (add(Action.ONEDEX_ADD, (1, 2), 0, 947), (10, 1, 2, 0, 0, 947), (Input(1, 0), Input(2, 0))),
    (add(Action.ASH_STABLE_ADD, (1, 2), 0, 4), (4, 1, 2, 255, 0, 4), (Input(1, 0), Input(2, 0))),
    (add(Action.ASH_CRYPTO_ADD, (1,), 0, 4), (7, 1, 255, 255, 0, 4), (Input(1, 0),)),
    (add(Action.JEX_STABLE_ADD, (1, 2, 3), 0, 4), (16, 1, 2, 3, 0, 4), (Input(1, 0), Input(2, 0), Input(3, 0))),
    (remove(Action.XEXCHANGE_REMOVE, 1, 0, 2, 4), (2, 1, 0, 255, 0, 4), (Input(1, 0),)),
    (remove(Action.ONEDEX_REMOVE, 1, 0, 2), (11, 1, 0, 255, 0, 255), (Input(1, 0),)),
    (remove(Action.JEX_REMOVE, 1, 0, 2, 4), (14, 1, 0, 255, 0, 4), (Input(1, 0),)),
    (remove(Action.ASH_STABLE_REMOVE, 1, 0, 3, 4), (5, 3, 1, 0, 0, 4), (Input(1, 0),)),
    (remove(Action.ASH_CRYPTO_REMOVE, 1, 0, 2, 4), (8, 2, 1, 0, 0, 4), (Input(1, 0),)),
    (remove(Action.JEX_STABLE_REMOVE, 1, 0, 3, 4), (17, 3, 1, 0, 0, 4), (Input(1, 0),)),
    (swap(Action.XEXCHANGE_SWAP, 255, 2, 1), (0, 2, 255, 1, 0, 255), ()),
    (swap(Action.JEX_SWAP, 255, 2, 1, 4), (12, 255, 1, 255, 0, 4), ()),
    (remove(Action.ASH_STABLE_REMOVE, 255, 1, 3, 4), (5, 3, 255, 1, 0, 4), ()),
]


@pytest.mark.parametrize(("built", "numbers", "withdrawn"), LAYOUTS, ids=lambda x: str(x)[:40])
def test_layouts(built: Instruction, numbers: tuple[int, ...], withdrawn: tuple[Input, ...]) -> None:
    """Each action's six numbers, and which inputs the contract reads out of them."""
    assert tuple(built) == numbers
    assert inputs(built) == withdrawn


def test_every_action_has_its_number() -> None:
    """Actions are the contract's 0 to 24."""
    assert [int(action) for action in Action] == list(range(25))


def changed(**fields: object) -> Program:
    return msgspec.structs.replace(three_hops(), **fields)


def step(instruction: Instruction) -> tuple[Instruction, ...]:
    return (instruction,)


REFUSED = [
    (changed(tokens=tuple(f"TOK-{k:06x}" for k in range(255))), "255 tokens: at most 254"),
    (changed(addresses=(b"\1" * 31,)), "32 bytes"),
    (changed(min_amount_out=-1), "negative"),
    (changed(amounts=(-1,)), "negative"),
    (changed(referral_id=1 << 64), "64 bits"),
    (changed(token_out=4), "token_out: token index 4 of 4"),
    (changed(token_out=255), "token index 255"),
    (changed(instructions=step(Instruction(25, 0, 0, 0, 0, 0))), "Invalid action type: 25"),
    (changed(instructions=step(Instruction(0, 1, 0, 300, 0, 255))), "does not fit"),
    (changed(instructions=step(Instruction(0, 1, 0, 0, 0, 1 << 16))), "does not fit"),
    (changed(instructions=step(swap(Action.XEXCHANGE_SWAP, 4, 1, ALL))), "token index 4"),
    (changed(instructions=step(swap(Action.XEXCHANGE_SWAP, 0, 4, ALL))), "token index 4"),
    (changed(instructions=step(swap(Action.XEXCHANGE_SWAP, 0, 1, fixed(1)))), "amount index 1 of 1"),
    (changed(instructions=step(swap(Action.XEXCHANGE_SWAP, 0, 1, ppm(1)))), "amount index 1 of 1"),
    (changed(amounts=(1_000_001,), instructions=step(swap(Action.XEXCHANGE_SWAP, 0, 1, ppm(0)))), "PPM value exceeds"),
    (changed(instructions=step(swap(Action.JEX_SWAP, 0, 1, ALL, 1))), "address index 1 of 1"),
    (changed(instructions=step(swap(Action.JEX_SWAP, 0, 1, ALL))), "means the contract finds the pool"),
    (changed(addresses=(POOL,) * 600, instructions=step(swap(Action.JEX_SWAP, 0, 1, ALL, 511))), "address index 511"),
    (changed(instructions=step(swap(Action.WRAP, 254, 3, ALL)) * 1025), "1025 instructions"),
]


@pytest.mark.parametrize(("program", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_programs_that_the_contract_would_refuse(program: Program, text: str) -> None:
    """Every limit has its words, and neither encoding nor `tx_data` lets it pass."""
    with pytest.raises(ProgramError, match=text):
        encode_arguments(program)
    with pytest.raises(ProgramError):
        tx_data(program, "USDC-c76f1f", 1)


def test_limits_of_modes() -> None:
    """126 amounts can be fixed, 128 can be parts per million."""
    assert (fixed(0), fixed(125), ppm(0), ppm(127)) == (2, 127, 128, 255)
    for build, index in ((fixed, 126), (fixed, -1), (ppm, 128), (ppm, -1)):
        with pytest.raises(ProgramError):
            build(index)


def damaged() -> list[tuple[list[bytes], str]]:
    good = encode_arguments(three_hops())
    return [
        ([], "minAmountOut is missing"),
        (good[:3], "count of tokens is missing"),
        (good[:5], "4 tokens announced, 1 arguments left"),
        (good[:-1], "not a multiple of 6"),
        ([b"\1" * 65, *good[1:]], "longer than 64 bytes"),
        ([good[0], b"\1\0", *good[2:]], "tokenOut is longer than 1 bytes"),
        ([*good[:3], b"\xff" * 9, *good[4:]], "longer than 4 bytes"),
        ([*good[:4], b"\xff\xfe", *good[5:]], "not ASCII"),
        ([*good[:-6], b"\1\0", *good[-5:]], "instructions is longer"),
        ([*good[:-6], b"\x19", *good[-5:]], "Invalid action type: 25"),
    ]


@pytest.mark.parametrize(("arguments", "text"), damaged(), ids=[text for _, text in damaged()])
def test_arguments_that_are_no_program(arguments: list[bytes], text: str) -> None:
    """Truncated, overlong or foreign arguments are refused with the part that is wrong."""
    with pytest.raises(ProgramError, match=text):
        decode_arguments(arguments)


@given(st.lists(st.binary(max_size=40), max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_arguments_are_answered(arguments: list[bytes]) -> None:
    """Noise is a program or a `ProgramError`."""
    try:
        program = decode_arguments(arguments)
    except ProgramError:
        return
    assert decode_arguments(encode_arguments(program)) == program


@pytest.mark.parametrize("action", sorted(SHARED_MODE_ADD))
def test_a_deposit_names_at_most_three_tokens(action: Action) -> None:
    """A fourth one has no place in an instruction: it is refused, not dropped."""
    for count in (1, 2, 3):
        made = add(action, range(count), ALL, 0)
        assert [item.token for item in inputs(made)] == [*range(count)]
    with pytest.raises(ProgramError, match="4 tokens: at most 3"):
        add(action, range(4), ALL, 0)
