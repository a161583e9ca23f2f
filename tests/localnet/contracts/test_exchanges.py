"""The exchanges' own functions: each pays exactly what the pool says and leaves the pool as it says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millrace.chain import abi
from millrace.chain.abi import Reader
from millrace.chain.token import NATIVE
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Pool, PoolState, Swap
from millrace.dex.stable import JexStablePool
from millrace.localnet.contracts.execution import BlockInfo, query
from millrace.localnet.market.market import WRAPPED

CONSTANT_PRODUCT = ("XExchange", "OneDex", "Jex")
SORTS = [(exchange, "constant_product") for exchange in CONSTANT_PRODUCT]
SORTS += [("Jex", "stable"), ("AshSwap", "stable"), ("AshSwap", "crypto")]


def swap_call(pool: Pool, i: int, j: int, minimum: int) -> tuple[bytes, ...]:
    """Function and arguments of a swap with a fixed input, per exchange."""
    of, to, least = pool.tokens[i].encode(), pool.tokens[j].encode(), abi.top_uint(minimum)
    return {
        ("XExchange", "constant_product"): (b"swapTokensFixedInput", to, least),
        ("OneDex", "constant_product"): (b"swapMultiTokensFixedInput", least, b"", of, to),
        ("Jex", "constant_product"): (b"swapTokensFixedInput", least),
        ("Jex", "stable"): (b"swap", to, least),
        ("AshSwap", "stable"): (b"exchange", to, least),
        ("AshSwap", "crypto"): (b"exchange", least),
    }[pool.exchange, pool.kind]


def run(world: Any, pool: Pool, call: tuple[bytes, ...], pay: list[tuple[str, int]]) -> Any:
    return world.call(pool.address, call[0].decode(), *call[1:], pay=pay)


def check_swap_events(events: Any, trader: bytes, pool: Pool, swap: Swap, sold: Any, paid: Any) -> None:
    """The events in the shape of each exchange, every number right."""
    tokens = (sold[0].encode(), paid[0].encode())
    mine = [event for event in events if event.topics[0].lower().startswith(b"swap")]
    assert {event.address for event in mine} == {pool.address}
    if isinstance(pool, OneDexPool):
        numbers = (tokens[0], abi.top_uint(sold[1]), tokens[1], abi.top_uint(paid[1]))
        names = [b"SwapTokensFixedInputEvent", b"SwapMultiTokensFixedInputEvent"]
        assert [event.topics for event in mine] == [(name, trader, *numbers, b"") for name in names]
        return
    (event,) = mine
    reader = Reader(event.data)
    assert (reader.take(32), reader.blob(), reader.biguint()) == (trader, tokens[0], sold[1])
    assert (reader.blob(), reader.biguint()) == (tokens[1], paid[1])
    if isinstance(pool, JexStablePool):
        assert event.topics == (b"swap", *tokens)
        assert reader.biguint() + reader.biguint() == swap.fee_amount
        assert reader.uint(8) == 0
    else:
        assert event.topics == (b"swap", *tokens, trader, b"")
        assert reader.biguint() == swap.fee_amount
        after = swap.pool
        reserves = [after.reserves[after.index(token)] for token in (sold[0], paid[0])]
        assert [reader.biguint(), reader.biguint()] == reserves
        assert [reader.uint(8) for _ in range(3)] == [0, 0, 0]
    reader.end()


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 0)])
def test_a_swap_pays_what_the_pool_says(world: Any, sort: tuple[str, str], i: int, j: int) -> None:
    """Output to the unit, pool as after the swap, the fee that leaves it with the exchange's receiver."""
    for pool in world.pools(*sort)[:4]:
        amount = max(pool.reserves[i] // 777, 1)
        swap = pool.swap(i, j, amount)
        held_in, held_out = world.held(pool.tokens[i]), world.held(pool.tokens[j])
        receiver = world.at.fee_receivers[pool.exchange]
        fees = [world.held(token, receiver) for token in pool.tokens]
        result = run(world, pool, swap_call(pool, i, j, swap.amount_out), [(pool.tokens[i], amount)])
        assert result.ok, result.return_message
        assert world.held(pool.tokens[j]) - held_out == swap.amount_out
        assert held_in - world.held(pool.tokens[i]) == amount
        assert world.ledger.pool(pool.id) == swap.pool
        for k, token in enumerate(pool.tokens):
            leaving = pool.reserves[k] - swap.pool.reserves[k]
            leaving += (amount if k == i else 0) - (swap.amount_out if k == j else 0)
            leaving -= sum(part.amount for part in swap.slices if part.token == token)
            assert world.held(token, receiver) - fees[k] == leaving >= 0
        sold, paid = (pool.tokens[i], amount), (pool.tokens[j], swap.amount_out)
        check_swap_events(result.events, world.alice, pool, swap, sold, paid)
        (transfer,) = [t for t in result.transfers if t.receiver == world.alice]
        assert (transfer.token, transfer.amount, transfer.delivered) == (pool.tokens[j], swap.amount_out, True)


TOO_LITTLE = {
    ("XExchange", "constant_product"): "Slippage exceeded",
    ("OneDex", "constant_product"): "Insufficient output token computed amount",
    ("Jex", "constant_product"): "Max slippage exceeded",
    ("Jex", "stable"): "Max slippage exceeded",
    ("AshSwap", "stable"): "Slippage exceeded",
    ("AshSwap", "crypto"): "Slippage exceeded",
}


@pytest.mark.parametrize("sort", SORTS)
def test_a_swap_below_its_minimum_reverts(world: Any, sort: tuple[str, str]) -> None:
    """One unit more than the pool pays and nothing happens."""
    pool = world.pools(*sort)[0]
    amount = pool.reserves[0] // 777
    out = pool.amount_out(0, 1, amount)
    before = world.picture()
    result = run(world, pool, swap_call(pool, 0, 1, out + 1), [(pool.tokens[0], amount)])
    assert result.return_message == f"{TOO_LITTLE[sort]}: have {out}, need {out + 1}"
    assert world.picture() == before


def fixed_output_call(pool: Pool, wanted: int) -> tuple[bytes, ...]:
    amount, of, to = abi.top_uint(wanted), pool.tokens[0].encode(), pool.tokens[1].encode()
    return {
        "XExchange": (b"swapTokensFixedOutput", to, amount),
        "OneDex": (b"swapMultiTokensFixedOutput", amount, b"", of, to),
        "Jex": (b"swapTokensFixedOutput", amount),
    }[pool.exchange]


@pytest.mark.parametrize("exchange", CONSTANT_PRODUCT)
def test_a_fixed_output_is_paid_exactly_and_the_rest_comes_back(world: Any, exchange: str) -> None:
    """The exchange takes its own view's input; what was paid beyond it returns; the product never falls."""
    for pool in world.pools(exchange)[:4]:
        assert isinstance(pool, XExchangePool | OneDexPool | JexPool)
        wanted = max(pool.reserves[1] // 555, 1)
        needed = pool.fixed_output_input(0, 1, wanted)
        first, second = (world.held(token) for token in pool.tokens)
        result = run(world, pool, fixed_output_call(pool, wanted), [(pool.tokens[0], needed + 100)])
        assert result.ok, result.return_message
        assert world.held(pool.tokens[0]) == first - needed
        assert world.held(pool.tokens[1]) == second + wanted
        after = world.ledger.pool(pool.id)
        assert after.reserves[0] * after.reserves[1] >= pool.reserves[0] * pool.reserves[1]
        world.check_solvent()
        result = run(world, after, fixed_output_call(after, wanted), [(pool.tokens[0], needed // 2)])
        assert not result.ok


def test_a_path_through_onedex_equals_its_hops_and_may_end_in_egld(world: Any) -> None:
    """Each hop sees the pool as it is; asked to unwrap, the router pays EGLD instead of the wrapped token."""
    second = next(pool for pool in world.pools("OneDex") if WRAPPED in pool.tokens)
    middle = second.tokens[1 - second.index(WRAPPED)]
    first = next(pool for pool in world.pools("OneDex") if middle in pool.tokens and pool.id != second.id)
    start = first.tokens[1 - first.index(middle)]
    amount = first.reserves[first.index(start)] // 5000
    got = first.amount_out(first.index(start), first.index(middle), amount)
    out = second.amount_out(second.index(middle), second.index(WRAPPED), got)
    path = [token.encode() for token in (start, middle, WRAPPED)]
    egld, wrapped = world.held(NATIVE), world.held(WRAPPED)
    unwrap = world.call(
        world.at.onedex, "swapMultiTokensFixedInput", abi.top_uint(out), b"\x01", *path, pay=[(start, amount)]
    )
    assert unwrap.ok, unwrap.return_message
    spent = amount if start == WRAPPED else 0
    assert (world.held(NATIVE) - egld, world.held(WRAPPED) - wrapped) == (out, -spent)
    world.check_solvent()


def test_a_path_with_a_fixed_output_through_two_pairs(world: Any) -> None:
    """Worked out backwards: the last hop pays exactly what was wanted, the caller pays what the first takes."""
    second = next(pool for pool in world.pools("OneDex") if WRAPPED in pool.tokens)
    middle = second.tokens[1 - second.index(WRAPPED)]
    first = next(pool for pool in world.pools("OneDex") if middle in pool.tokens and pool.id != second.id)
    start = first.tokens[1 - first.index(middle)]
    wanted = second.reserves[second.index(WRAPPED)] // 5000
    between = second.fixed_output_input(second.index(middle), second.index(WRAPPED), wanted)
    needed = first.fixed_output_input(first.index(start), first.index(middle), between)
    held, wrapped = world.held(start), world.held(WRAPPED)
    path = [token.encode() for token in (start, middle, WRAPPED)]
    result = world.call(
        world.at.onedex,
        "swapMultiTokensFixedOutput",
        abi.top_uint(wanted),
        b"",
        *path,
        pay=[(start, needed * 2)],
    )
    assert result.ok, result.return_message
    assert held - world.held(start) == needed
    assert world.held(WRAPPED) - wrapped == wanted
    world.check_solvent()


def test_onedex_takes_egld_for_wrapped_egld(world: Any) -> None:
    """EGLD is wrapped by the router; what a fixed output does not need comes back wrapped."""
    pool = next(pool for pool in world.pools("OneDex") if WRAPPED in pool.tokens)
    i = pool.index(WRAPPED)
    token, amount = pool.tokens[1 - i], pool.reserves[i] // 1000
    path, held = (WRAPPED.encode(), token.encode()), world.held(token)
    out = pool.amount_out(i, 1 - i, amount)
    result = world.call(
        world.at.onedex, "swapMultiTokensFixedInput", abi.top_uint(out), b"", *path, pay=[(NATIVE, amount)]
    )
    assert result.ok, result.return_message
    assert world.held(token) - held == out
    wrapped, needed = world.held(WRAPPED), world.ledger.pool(pool.id).fixed_output_input(i, 1 - i, out // 2)
    arguments = (abi.top_uint(out // 2), b"", *path)
    assert world.call(world.at.onedex, "swapMultiTokensFixedOutput", *arguments, pay=[(NATIVE, amount)]).ok
    assert world.held(WRAPPED) - wrapped == amount - needed
    world.check_solvent()


def test_onedex_unwraps_only_wrapped_egld(world: Any) -> None:
    """Asking for EGLD at the end of another path reverts."""
    pool = next(pool for pool in world.pools("OneDex") if WRAPPED not in pool.tokens)
    path = [token.encode() for token in pool.tokens]
    pay = [(pool.tokens[0], pool.reserves[0] // 100)]
    result = world.call(world.at.onedex, "swapMultiTokensFixedInput", b"\x01", b"\x01", *path, pay=pay)
    assert result.return_message == "Only unwrap available for wegld"


def test_liquidity_events_have_the_exchanges_shapes(world: Any) -> None:
    """xExchange nests its numbers in the data, OneDex lists them as topics."""
    world.state.block = BlockInfo(nonce=7, round=9, epoch=3, timestamp=11)
    pool = world.pools("XExchange")[0]
    amounts = (pool.reserves[0] // 300, pool.reserves[1] // 200)
    mint, names = pool.mint(amounts), [token.encode() for token in pool.tokens]
    pay = list(zip(pool.tokens, amounts, strict=True))
    result = world.call(pool.address, "addLiquidity", b"\x01", b"\x01", pay=pay)
    (event,) = [event for event in result.events if event.topics[0] == b"add_liquidity"]
    assert event.topics[1:] == (*names, world.alice, b"\x03")
    reader = Reader(event.data)
    assert reader.take(32) == world.alice
    assert [(reader.blob(), reader.biguint()) for _ in names] == list(zip(names, mint.used, strict=True))
    assert (reader.blob(), reader.biguint()) == (pool.lp_token.encode(), mint.lp)
    assert [reader.biguint() for _ in range(3)] == [mint.pool.lp_supply, *mint.pool.reserves]
    assert [reader.uint(8) for _ in range(3)] == [7, 3, 11]
    reader.end()
    pool = world.pools("OneDex")[0]
    lp = world.held(pool.lp_token) // 10
    burn = pool.burn(lp)
    result = world.call(pool.address, "removeLiquidity", b"", b"", b"", pay=[(pool.lp_token, lp)])
    (event,) = [event for event in result.events if event.topics[0] == b"RemoveLiquidityEvent"]
    parts = [*zip(pool.tokens, burn.amounts, strict=True), (pool.lp_token, lp)]
    numbers = [part for token, amount in parts for part in (token.encode(), abi.top_uint(amount))]
    assert event.topics[1:] == (world.alice, *numbers, b"\x0b")


@pytest.mark.parametrize("path", [[], [b"USDC-c76f1f"], [b"USDC-c76f1f", b"NOPE-123456"], [b"X"] * 3])
def test_impossible_onedex_paths_revert(world: Any, path: list[bytes]) -> None:
    """Too short, unknown or malformed paths are refused in words."""
    result = world.call(world.at.onedex, "swapMultiTokensFixedInput", b"\x01", b"", *path, pay=[("USDC-c76f1f", 100)])
    assert not result.ok
    assert result.return_message != "contract fault"


@pytest.mark.parametrize("sort", SORTS)
def test_deposits_and_withdrawals_follow_the_pool(world: Any, sort: tuple[str, str]) -> None:
    """LP units minted and amounts paid are the pool's own; what a deposit cannot use comes back."""
    for pool in world.pools(*sort)[:3]:
        n, lp_held = len(pool.tokens), world.held(pool.lp_token)
        # The second amount is always more than the first one needs.
        amounts = tuple([max(reserve // (300 - 40 * k), 1) for k, reserve in enumerate(pool.reserves)])
        mint, held = pool.mint(amounts), [world.held(token) for token in pool.tokens]
        zeros = [b"\x01"] * (2 if sort[0] in ("XExchange", "OneDex") else 1)
        result = world.call(pool.address, "addLiquidity", *zeros, pay=list(zip(pool.tokens, amounts, strict=True)))
        assert result.ok, result.return_message
        assert world.held(pool.lp_token) - lp_held == mint.lp
        assert [h - world.held(t) for h, t in zip(held, pool.tokens, strict=True)] == list(mint.used)
        after = world.ledger.pool(pool.id)
        assert after == mint.pool
        burn, held = after.burn(mint.lp), [world.held(token) for token in pool.tokens]
        minima = [b""] * n if sort != ("AshSwap", "crypto") else [abi.nested_biguint(0) * n]
        minima += [b""] if sort[0] == "OneDex" else []  # not to be unwrapped
        result = world.call(pool.address, "removeLiquidity", *minima, pay=[(pool.lp_token, mint.lp)])
        assert result.ok, result.return_message
        assert [world.held(t) - h for h, t in zip(held, pool.tokens, strict=True)] == list(burn.amounts)
        assert world.ledger.pool(pool.id) == burn.pool
        world.check_solvent()


SINGLE_SIDED = {
    ("Jex", "constant_product"): ("addLiquiditySingle", "removeLiquiditySingle"),
    ("Jex", "stable"): ("addLiquidity", "removeLiquidityOneToken"),
    ("AshSwap", "stable"): ("addLiquidity", "removeLiquidityOneCoin"),
    ("AshSwap", "crypto"): ("addLiquidity", "removeLiquidityOneCoin"),
}


@pytest.mark.parametrize("sort", SINGLE_SIDED)
def test_single_sided_deposits_and_withdrawals(world: Any, sort: tuple[str, str]) -> None:
    """One token in, one token out, both to the unit."""
    add, remove = SINGLE_SIDED[sort]
    pool = world.pools(*sort)[0]
    amount, lp_held = pool.reserves[0] // 500, world.held(pool.lp_token)
    mint = pool.mint((amount, 0)) if pool.kind == "crypto" else pool.mint_single(0, amount)
    minima = [b"", b""] if add == "addLiquiditySingle" else [b""]
    assert world.call(pool.address, add, *minima, pay=[(pool.tokens[0], amount)]).ok
    assert world.held(pool.lp_token) - lp_held == mint.lp
    burn, held = mint.pool.burn_single(mint.lp, 1), world.held(pool.tokens[1])
    token = pool.tokens[1].encode()
    arguments = {
        ("Jex", "constant_product"): (token, b"", b""),
        ("AshSwap", "crypto"): (b"\x01", b""),
    }.get(sort, (token, b""))
    result = world.call(pool.address, remove, *arguments, pay=[(pool.lp_token, mint.lp)])
    assert result.ok, result.return_message
    assert world.held(pool.tokens[1]) - held == burn.amounts[1]
    assert world.ledger.pool(pool.id) == burn.pool
    world.check_solvent()


@pytest.mark.parametrize("exchange", CONSTANT_PRODUCT)
def test_deposits_must_bring_both_tokens_in_order(world: Any, exchange: str) -> None:
    """The wrong order or a missing token reverts, and a minimum above the possible one too."""
    pool = world.pools(exchange)[0]
    first, second = ((token, reserve // 100) for token, reserve in zip(pool.tokens, pool.reserves, strict=True))
    zeros = [b"\x01"] if exchange == "Jex" else [b"\x01", b"\x01"]
    huge = [abi.top_uint(10**40)] * len(zeros)
    before = world.picture()
    assert not world.call(pool.address, "addLiquidity", *zeros, pay=[second, first]).ok
    assert not world.call(pool.address, "addLiquidity", *zeros, pay=[first]).ok
    assert not world.call(pool.address, "addLiquidity", *huge, pay=[first, second]).ok
    assert world.picture() == before
    plenty = (second[0], second[1] * 2)
    assert world.call(pool.address, "addLiquidity", *zeros, pay=[first, plenty]).ok


BLEMISHES: list[tuple[str, dict[str, Any]]] = [
    ("XExchange", {"state": PoolState.INACTIVE}),
    ("XExchange", {"state": PoolState.NO_SWAPS}),
    ("OneDex", {"enabled": False}),
    ("Jex", {"state": PoolState.NO_SWAPS}),
]


@pytest.mark.parametrize(("exchange", "change"), BLEMISHES)
def test_pools_not_in_order_refuse_swaps(world: Any, exchange: str, change: dict[str, Any]) -> None:
    """Inactive, swapless and disabled pools revert, and say which pool it is."""
    pool = world.pools(exchange)[0]
    world.ledger.put_pools((msgspec.structs.replace(pool, **change),))
    result = run(world, pool, swap_call(pool, 0, 1, 1), [(pool.tokens[0], pool.reserves[0] // 100)])
    assert not result.ok
    assert pool.id in result.return_message


def test_restricted_pools_trade_with_nobody_here(world: Any) -> None:
    """A JEX stable pool with a caller list refuses everyone who is not on it."""
    pool = msgspec.structs.replace(world.pools("Jex", "stable")[0], restricted=True)
    world.ledger.put_pools((pool,))
    result = run(world, pool, swap_call(pool, 0, 1, 2), [(pool.tokens[0], pool.reserves[0] // 100)])
    assert "own list" in result.return_message


def test_views_agree_with_the_pools(world: Any) -> None:
    """Estimates asked through the chain are the pool's own numbers."""
    pool = world.pools("OneDex")[0]
    first, second = (token.encode() for token in pool.tokens)
    amount = pool.reserves[0] // 100
    (out,) = query(world.state, world.at.onedex, "getAmountOut", [first, second, abi.top_uint(amount)])
    assert abi.decode_uint(out) == pool.view_amount_out(0, 1, amount)
    (needed,) = query(world.state, world.at.onedex, "getAmountIn", [first, second, out])
    assert abi.decode_uint(needed) == pool.view_amount_in(0, 1, abi.decode_uint(out))
    (*reserves, supply) = query(world.state, world.at.onedex, "getPairReserve", [first, second])
    assert [*map(abi.decode_uint, (*reserves, supply))] == [*pool.reserves, pool.lp_supply]
    pool = world.pools("Jex")[0]
    amount = pool.reserves[0] // 100
    answer = query(world.state, pool.address, "estimateAmountOut", [pool.tokens[0].encode(), abi.top_uint(amount)])
    net, gross, lp_fee, platform_fee = map(abi.decode_uint, answer)
    assert net == gross - lp_fee - platform_fee == pool.amount_out(0, 1, amount)
    for exchange in ("XExchange", "Jex"):
        pool = world.pools(exchange)[0]
        function = "getAmountIn" if exchange == "XExchange" else "estimateAmountIn"
        wanted = pool.reserves[1] // 100
        arguments = [pool.tokens[1].encode(), abi.top_uint(wanted)]
        (needed,) = query(world.state, pool.address, function, arguments)
        assert abi.decode_uint(needed) == pool.fixed_output_input(0, 1, wanted)


@pytest.mark.parametrize("sort", SORTS[3:])
def test_estimates_of_curved_pools(world: Any, sort: tuple[str, str]) -> None:
    """Each exchange's `estimateAmountOut`, in its own order of arguments."""
    pool = world.pools(*sort)[0]
    amount = pool.reserves[0] // 100
    of, to, number = pool.tokens[0].encode(), pool.tokens[1].encode(), abi.top_uint(amount)
    arguments = {
        ("Jex", "stable"): [of, number, to],
        ("AshSwap", "stable"): [of, to, number],
        ("AshSwap", "crypto"): [b"", b"\x01", number],
    }[sort]
    (out,) = query(world.state, pool.address, "estimateAmountOut", arguments)
    assert abi.decode_uint(out) == pool.amount_out(0, 1, amount)
