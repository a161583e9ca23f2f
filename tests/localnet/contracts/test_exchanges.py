"""The exchanges' own functions: each pays exactly what the pool says and leaves the pool as it says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millrace.chain import abi
from millrace.chain.token import NATIVE
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Pool, PoolState
from millrace.localnet.execution import query
from millrace.localnet.market import WRAPPED

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
            assert world.held(token, receiver) - fees[k] == leaving >= 0
        (event,) = [event for event in result.events if event.topics[0] == b"swap"]
        assert event.address == pool.address
        assert event.topics[1:4] == (pool.tokens[i].encode(), pool.tokens[j].encode(), world.alice)
        (transfer,) = [t for t in result.transfers if t.receiver == world.alice]
        assert (transfer.token, transfer.amount, transfer.delivered) == (pool.tokens[j], swap.amount_out, True)


@pytest.mark.parametrize("sort", SORTS)
def test_a_swap_below_its_minimum_reverts(world: Any, sort: tuple[str, str]) -> None:
    """One unit more than the pool pays and nothing happens."""
    pool = world.pools(*sort)[0]
    amount = pool.reserves[0] // 777
    out = pool.amount_out(0, 1, amount)
    before = world.picture()
    result = run(world, pool, swap_call(pool, 0, 1, out + 1), [(pool.tokens[0], amount)])
    assert result.return_message == f"Slippage exceeded: have {out}, need {out + 1}"
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
        amounts = tuple([max(reserve // (300 + 40 * k), 1) for k, reserve in enumerate(pool.reserves)])
        mint, held = pool.mint(amounts), [world.held(token) for token in pool.tokens]
        zeros = [b""] * (n if n == 2 and sort[1] == "constant_product" and sort[0] != "Jex" else 1)
        result = world.call(pool.address, "addLiquidity", *zeros, pay=list(zip(pool.tokens, amounts, strict=True)))
        assert result.ok, result.return_message
        assert world.held(pool.lp_token) - lp_held == mint.lp
        assert [h - world.held(t) for h, t in zip(held, pool.tokens, strict=True)] == list(mint.used)
        after = world.ledger.pool(pool.id)
        assert after == mint.pool
        burn, held = after.burn(mint.lp), [world.held(token) for token in pool.tokens]
        minima = [b""] * n if sort != ("AshSwap", "crypto") else [abi.nested_biguint(0) * n]
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
    assert world.call(pool.address, add, b"", pay=[(pool.tokens[0], amount)]).ok
    assert world.held(pool.lp_token) - lp_held == mint.lp
    burn, held = mint.pool.burn_single(mint.lp, 1), world.held(pool.tokens[1])
    token = pool.tokens[1].encode()
    arguments = {
        ("Jex", "constant_product"): (b"", token),
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
    zeros = [b""] if exchange == "Jex" else [b"", b""]
    huge = [abi.top_uint(10**40)] * len(zeros)
    before = world.picture()
    assert not world.call(pool.address, "addLiquidity", *zeros, pay=[second, first]).ok
    assert not world.call(pool.address, "addLiquidity", *zeros, pay=[first]).ok
    assert not world.call(pool.address, "addLiquidity", *huge, pay=[first, second]).ok
    assert world.picture() == before
    assert world.call(pool.address, "addLiquidity", *zeros, pay=[first, second]).ok


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
