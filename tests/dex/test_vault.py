"""The contract's vault: modes, order, fees, minimum, leftovers, and every action on every exchange."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import (
    ALL,
    AUTO,
    EGLD_INDEX,
    NONE_INDEX,
    PREVIOUS,
    WRAPPER,
    Action,
    Instruction,
    Program,
    add,
    decode_arguments,
    encode_arguments,
    fixed,
    ppm,
    remove,
    swap,
)
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.cryptoswap import newton_d
from millrace.dex.pool import Pool, PoolState
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.dex.vault import Asset, DictMarket, Referral, Step, VaultError, VaultResult, execute
from millrace.dex.zap import FeeModel, balancing_swap

WEGLD, USDC, USDT, MEX = "WEGLD-bd4d79", "USDC-c76f1f", "USDT-f8c08c", "MEX-455c57"
EGLD = "EGLD-000000"
UNIT = 10**18
TOKENS = (WEGLD, USDC, USDT, MEX, "LPX-000001", "LPO-000002", "LPJ-000003", "LPS-000004", "LPA-000005", "LPC-000006")
W, C, T, M, LPX, LPO, LPJ, LPS, LPA, LPC = range(10)
ROUTER = bytes(31) + b"\xff"


def at(k: int) -> bytes:
    return bytes(31) + bytes([k])


def pools() -> dict[str, Pool]:
    """One pool of each kind, and a second xExchange pair."""
    crypto: dict[str, Any] = {
        "id": "c",
        "address": at(6),
        "tokens": (USDT, WEGLD),
        "reserves": (4_000_000 * 10**6, 100_000 * UNIT),
        "lp_token": "LPC-000006",
        "lp_supply": 600_000 * UNIT,
        "decimals": (6, 18),
        "ann": 400_000,
        "gamma": 145_000_000_000_000,
        "d": 1,
        "price_scale": 40 * UNIT,
        "mid_fee": 20_000_000,
        "out_fee": 40_000_000,
        "fee_gamma": 230_000_000_000_000,
    }
    empty = AshCryptoPool(**crypto)
    crypto["d"] = newton_d(empty.ann, empty.gamma, empty.scaled(empty.reserves))
    stable: dict[str, Any] = {"decimals": (6, 6), "prices": (UNIT, UNIT), "amp": 256}
    return {
        "x": XExchangePool(
            id="x",
            address=at(1),
            tokens=(WEGLD, USDC),
            reserves=(81_478 * UNIT, 3_260_000 * 10**6),
            lp_token="LPX-000001",
            lp_supply=9_390_873_908_175,
            total_fee=300,
            special_fee=50,
        ),
        "m": XExchangePool(
            id="m",
            address=at(7),
            tokens=(MEX, WEGLD),
            reserves=(10**12 * UNIT, 30_000 * UNIT),
            lp_token="LPM-000007",
            lp_supply=10**22,
            total_fee=1000,
            special_fee=100,
        ),
        "o": OneDexPool(
            id="o",
            address=ROUTER,
            tokens=(MEX, USDC),
            reserves=(5 * 10**11 * UNIT, 600_000 * 10**6),
            lp_token="LPO-000002",
            lp_supply=10**21,
            pair_id=9,
            total_fee=100,
            special_fee=30,
            staking_fee=20,
            main=(False, True),
        ),
        "j": JexPool(
            id="j",
            address=at(3),
            tokens=(USDC, WEGLD),
            reserves=(400_000 * 10**6, 10_000 * UNIT),
            lp_token="LPJ-000003",
            lp_supply=5 * UNIT,
            lp_fee=20,
            platform_fee=20,
            token_id_keys=True,
        ),
        "s": JexStablePool(
            id="s",
            address=at(4),
            tokens=(USDC, USDT),
            reserves=(411_423_569_165, 300_289_266_690),
            lp_token="LPS-000004",
            lp_supply=711_000 * UNIT,
            swap_fee=500,
            liquidity_fee=250,
            **stable,
        ),
        "a": AshStablePool(
            id="a",
            address=at(5),
            tokens=(USDC, USDT),
            reserves=(500_000 * 10**6, 600_000 * 10**6),
            lp_token="LPA-000005",
            lp_supply=1_100_000 * UNIT,
            swap_fee=50,
            admin_fee=50_000,
            **stable,
        ),
        "c": AshCryptoPool(**crypto),
    }


def market(**changed: Pool) -> DictMarket:
    return DictMarket((pools() | changed).values(), WEGLD)


ADDRESSES = (at(1), at(3), at(4), at(5), at(6))
AX, AJ, AS, AA, AC = range(5)


def program(
    *steps: Instruction, out: int, amounts: tuple[int, ...] = (), minimum: int = 1, referral: int = 0
) -> Program:
    return Program(TOKENS, ADDRESSES, amounts, steps, minimum, out, referral)


def run(
    plan: Program, *payments: tuple[str, int], referral: Referral | None = None, on: DictMarket | None = None
) -> VaultResult:
    paid = [TokenPayment(token, 0, amount) for token, amount in payments]
    return execute(plan, paid, on or market(), referral)


def sell(pool: Pool, token: str, amount: int) -> Any:
    i = pool.index(token)
    return pool.swap(i, 1 - i, amount)


# Swaps and modes


def test_a_chain_of_previous_results() -> None:
    """Each hop takes what the last one gave; the answer is the pools' own arithmetic, with a record per hop."""
    plan = program(
        swap(Action.XEXCHANGE_SWAP, C, W, fixed(0)),
        swap(Action.XEXCHANGE_SWAP, NONE_INDEX, M, PREVIOUS),
        swap(Action.ONEDEX_SWAP, NONE_INDEX, C, PREVIOUS),
        swap(Action.JEX_SWAP, NONE_INDEX, W, PREVIOUS, AJ),
        out=W,
        amounts=(10**9,),
    )
    result = run(plan, (USDC, 10**9))
    known = pools()
    amount, token = 10**9, USDC
    for step, name in zip(result.steps, ("x", "m", "o", "j"), strict=True):
        outcome = sell(known[name], token, amount)
        bought = known[name].tokens[1 - known[name].index(token)]
        assert step.inputs == (Asset(token, amount),)
        assert step.outputs == (Asset(bought, outcome.amount_out),)
        assert step.fees == (Asset(outcome.fee_token, outcome.fee_amount),)
        assert result.pools[name] == outcome.pool
        amount, token = outcome.amount_out, bought
    assert (result.token_out, result.amount_out, result.kept) == (WEGLD, amount, {})
    assert [step.dex for step in result.steps] == ["xExchange", "xExchange", "OneDex", "JEX"]
    assert [step.pair_id for step in result.steps] == [None, None, 9, None]


def test_every_swap_action() -> None:
    """Stable and crypto pools swap by address, two-coin ones with the output implied."""
    plan = program(
        swap(Action.JEX_STABLE_SWAP, C, T, ppm(0), AS),
        swap(Action.ASH_STABLE_SWAP, C, T, ALL, AA),
        swap(Action.ASH_CRYPTO_SWAP, T, W, ALL, AC),
        out=W,
        amounts=(400_000,),
    )
    result = run(plan, (USDC, 1_000_000_001))
    known = pools()
    first = sell(known["s"], USDC, 400_000_000)
    second = sell(known["a"], USDC, 600_000_001)
    last = sell(known["c"], USDT, first.amount_out + second.amount_out)
    assert result.amount_out == last.amount_out
    assert [step.dex for step in result.steps] == ["JEX", "AshSwap", "AshSwap"]


def test_parts_per_million_are_of_the_balance_at_that_moment() -> None:
    """The second half of what is left is a quarter of the whole, rounded down; `all` takes the rest."""
    plan = program(
        swap(Action.XEXCHANGE_SWAP, C, W, ppm(0)),
        swap(Action.JEX_SWAP, C, W, ppm(0), AJ),
        swap(Action.XEXCHANGE_SWAP, C, W, ALL),
        out=W,
        amounts=(500_000,),
    )
    steps = run(plan, (USDC, 10_000_003)).steps
    assert [step.inputs[0].amount for step in steps] == [5_000_001, 2_500_001, 2_500_001]


def test_a_pool_used_twice_has_moved() -> None:
    """The second path through a pool sees what the first left."""
    plan = program(
        swap(Action.XEXCHANGE_SWAP, C, W, fixed(0)), swap(Action.XEXCHANGE_SWAP, C, W, ALL), out=W, amounts=(10**10,)
    )
    first, second = (step.outputs[0].amount for step in run(plan, (USDC, 2 * 10**10)).steps)
    assert second < first
    pool = sell(pools()["x"], USDC, 10**10).pool
    assert second == sell(pool, USDC, 10**10).amount_out


def test_wrapping_and_unwrapping() -> None:
    """EGLD is a token of its own in the vault; the wrapper changes it one to one."""
    forward = program(swap(Action.WRAP, EGLD_INDEX, W, ALL), swap(Action.XEXCHANGE_SWAP, W, C, ALL), out=C)
    result = run(forward, ("EGLD", UNIT))
    assert result.amount_out == sell(pools()["x"], WEGLD, UNIT).amount_out
    assert (result.steps[0].dex, result.steps[0].address) == ("wrapper", WRAPPER)
    back = program(
        swap(Action.XEXCHANGE_SWAP, C, W, ALL), swap(Action.UNWRAP, NONE_INDEX, EGLD_INDEX, PREVIOUS), out=EGLD_INDEX
    )
    result = run(back, (USDC, 10**9))
    assert (result.token_out, result.amount_out) == (EGLD, sell(pools()["x"], USDC, 10**9).amount_out)
    assert run(program(out=EGLD_INDEX), ("EGLD-000000", 5)).amount_out == 5


def test_only_the_output_token_is_paid() -> None:
    """Everything else that is left in the vault stays with the contract."""
    plan = program(swap(Action.XEXCHANGE_SWAP, C, W, fixed(0)), out=W, amounts=(10**8,))
    result = run(plan, (USDC, 10**9), (MEX, 7))
    assert result.kept == {USDC: 9 * 10**8, MEX: 7}
    assert result.token_out == WEGLD


def test_nothing_given_is_changed() -> None:
    """Execution leaves the market alone; applying the result is the caller's step."""
    book = market()
    result = run(program(swap(Action.XEXCHANGE_SWAP, C, W, ALL), out=W), (USDC, 10**9), on=book)
    assert book.pools == pools()
    book.update(result.pools)
    assert book.pools["x"] == result.pools["x"] != pools()["x"]
    assert book.xexchange(WEGLD, USDC) == result.pools["x"]


# Fees and the minimum


REFERRAL = Referral(id=7, static_fee_bps=10, referral_fee_bps=25)


def test_referral_fees_are_rounded_down_each() -> None:
    """With an active referral both fees leave the output, and stay with the contract."""
    plan = program(out=C, referral=7)
    result = run(plan, (USDC, 10_999), referral=REFERRAL)
    assert (result.static_fee, result.referral_fee) == (10, 27)
    assert result.amount_out == 10_999 - 37
    assert result.kept == {USDC: 37}


@pytest.mark.parametrize("known", [None, msgspec.structs.replace(REFERRAL, active=False)])
def test_no_fee_without_an_active_referral(known: Referral | None) -> None:
    """An unknown or switched-off referral costs nothing, and referral 0 never does."""
    assert run(program(out=C, referral=7), (USDC, 10_999), referral=known).amount_out == 10_999
    assert run(program(out=C), (USDC, 10_999), referral=REFERRAL).amount_out == 10_999


def test_the_minimum_is_checked_after_fees() -> None:
    """One unit short reverts, in the contract's words."""
    assert run(program(out=C, referral=7, minimum=10_962), (USDC, 10_999), referral=REFERRAL).amount_out == 10_962
    with pytest.raises(VaultError, match=r"^Slippage limit exceeded: have 10962, need 10963$"):
        run(program(out=C, referral=7, minimum=10_963), (USDC, 10_999), referral=REFERRAL)


# Reverts


ERRORS: list[tuple[str, Program, str]] = [
    (
        "nothing of the token",
        program(swap(Action.XEXCHANGE_SWAP, W, C, ALL), out=C),
        f"Token not found in vault: {WEGLD}",
    ),
    ("no output", program(out=W), f"Token not found in vault: {WEGLD}"),
    (
        "a share that rounds to zero",
        program(swap(Action.XEXCHANGE_SWAP, C, W, ppm(0)), out=W, amounts=(0,)),
        "Zero input amount",
    ),
    ("a fixed zero", program(swap(Action.XEXCHANGE_SWAP, C, W, fixed(0)), out=W, amounts=(0,)), "Zero input amount"),
    (
        "more than there is",
        program(swap(Action.XEXCHANGE_SWAP, C, W, fixed(0)), out=W, amounts=(10**9 + 1,)),
        f"Insufficient vault balance for token {USDC}: have 1000000000, need 1000000001",
    ),
    (
        "no previous result",
        program(swap(Action.XEXCHANGE_SWAP, NONE_INDEX, W, PREVIOUS), out=W),
        "PrevAmount not available",
    ),
    (
        "another previous result",
        program(
            swap(Action.XEXCHANGE_SWAP, C, W, fixed(0)),
            swap(Action.XEXCHANGE_SWAP, C, W, PREVIOUS),
            out=W,
            amounts=(5000,),
        ),
        "PrevAmount token mismatch",
    ),
    (
        "more than all parts",
        program(swap(Action.XEXCHANGE_SWAP, C, W, ppm(0)), out=W, amounts=(1_000_001,)),
        "PPM value exceeds 1,000,000 (100%)",
    ),
    ("an unknown action", program(Instruction(25, C, W, 0, 0, AUTO), out=W), "Invalid action type: 25"),
    ("an index too high", program(swap(Action.XEXCHANGE_SWAP, C, 77, ALL), out=W), "index out of range"),
    ("an amount too high", program(swap(Action.XEXCHANGE_SWAP, C, W, fixed(3)), out=W), "index out of range"),
    ("an address too high", program(swap(Action.JEX_SWAP, C, W, ALL, 5), out=W), "index out of range"),
    ("an address missing", program(swap(Action.JEX_SWAP, C, W, ALL), out=W), "JEX_SWAP: the pool's address is missing"),
    (
        "no such pair",
        program(swap(Action.XEXCHANGE_SWAP, C, T, ALL), out=T),
        f"xExchange pair {USDC} {USDT} does not exist",
    ),
    (
        "no such OneDex pair",
        program(swap(Action.ONEDEX_SWAP, C, T, ALL), out=T),
        f"OneDex pair {USDC} {USDT} does not exist",
    ),
    ("a pool of another kind", program(swap(Action.JEX_SWAP, C, W, ALL, AX), out=W), "pool x takes no JEX_SWAP"),
    ("wrapping a token", program(swap(Action.WRAP, C, W, ALL), out=W), f"the wrapper takes {EGLD}, got {USDC}"),
    ("unwrapping a token", program(swap(Action.UNWRAP, C, W, ALL), out=W), f"the wrapper takes {WEGLD}, got {USDC}"),
    ("staking", program(swap(Action.HATOM_SUPPLY, C, W, ALL), out=W), "HATOM_SUPPLY: no such market here"),
    (
        "a foreign token",
        program(swap(Action.ASH_CRYPTO_SWAP, C, W, ALL, AC), out=W),
        f"AshSwap: {USDC} is not a token of pool c",
    ),
    ("one token for a pair", program(swap(Action.XEXCHANGE_ADD, C, W, ALL), out=LPX), "needs both tokens"),
    ("a wrong count", program(remove(Action.JEX_STABLE_REMOVE, C, ALL, 3, AS), out=T), "Invalid LP token"),
]


@pytest.mark.parametrize(
    ("plan", "text"), [(plan, text) for _, plan, text in ERRORS], ids=[name for name, _, _ in ERRORS]
)
def test_reverts(plan: Program, text: str) -> None:
    """Each way to fail has the contract's words, and nothing else escapes."""
    with pytest.raises(VaultError) as caught:
        run(plan, (USDC, 10**9))
    assert text in str(caught.value)


def test_payments_must_be_fungible_and_positive() -> None:
    """Tokens with a nonce and empty payments are refused."""
    with pytest.raises(VaultError, match=f"Only fungible ESDT tokens are accepted, got {MEX}"):
        execute(program(out=C), [TokenPayment(MEX, 3, 1)], market())
    with pytest.raises(VaultError, match="Zero input amount"):
        run(program(out=C), (USDC, 0))


def test_pools_that_refuse_make_the_call_revert() -> None:
    """A paused, restricted or drained pool reverts the call with the exchange's name and the reason."""
    paused = msgspec.structs.replace(pools()["x"], state=PoolState.NO_SWAPS)
    with pytest.raises(VaultError, match=r"^xExchange: pool x is noSwaps"):
        run(program(swap(Action.XEXCHANGE_SWAP, C, W, ALL), out=W), (USDC, 10**9), on=market(x=paused))
    restricted = msgspec.structs.replace(pools()["s"], restricted=True)
    with pytest.raises(VaultError, match=r"^JEX: pool s serves only"):
        run(program(swap(Action.JEX_STABLE_SWAP, C, T, ALL, AS), out=T), (USDC, 10**9), on=market(s=restricted))
    with pytest.raises(VaultError, match=r"^xExchange: the amount is too small"):
        run(program(swap(Action.XEXCHANGE_SWAP, M, W, ALL), out=W), (MEX, 1))


def test_jex_stable_pools_want_two_units() -> None:
    """The contract asks JEX stable pools for at least 2 units."""
    plan = program(swap(Action.JEX_STABLE_SWAP, C, T, ALL, AS), out=T)
    assert run(plan, (USDC, 3)).amount_out == 2
    with pytest.raises(VaultError, match="Max slippage exceeded"):
        run(plan, (USDC, 2))


# Liquidity


def test_a_withdrawal_pays_all_tokens_and_sets_no_previous_result() -> None:
    """Both tokens land in the vault; `previous` still means the result before the withdrawal."""
    plan = program(remove(Action.XEXCHANGE_REMOVE, LPX, ALL, 2, AX), swap(Action.XEXCHANGE_SWAP, C, W, ALL), out=W)
    lp = 9_390_873_908
    result = run(plan, ("LPX-000001", lp))
    burn = pools()["x"].burn(lp)
    sold = burn.pool.swap(1, 0, burn.amounts[1])
    assert result.amount_out == burn.amounts[0] + sold.amount_out
    assert result.steps[0].outputs == (Asset(WEGLD, burn.amounts[0]), Asset(USDC, burn.amounts[1]))
    lonely = program(
        remove(Action.XEXCHANGE_REMOVE, LPX, ALL, 2, AX), swap(Action.XEXCHANGE_SWAP, NONE_INDEX, W, PREVIOUS), out=W
    )
    with pytest.raises(VaultError, match="PrevAmount not available"):
        run(lonely, ("LPX-000001", lp))


REMOVALS = [
    (Action.ONEDEX_REMOVE, LPO, "o", AUTO),
    (Action.JEX_REMOVE, LPJ, "j", AJ),
    (Action.JEX_STABLE_REMOVE, LPS, "s", AS),
    (Action.ASH_STABLE_REMOVE, LPA, "a", AA),
    (Action.ASH_CRYPTO_REMOVE, LPC, "c", AC),
]


@pytest.mark.parametrize(("action", "lp_token", "name", "w"), REMOVALS, ids=[str(r[0].name) for r in REMOVALS])
def test_withdrawals_of_each_exchange(action: Action, lp_token: int, name: str, w: int) -> None:
    """Every exchange pays the pool's own shares; the unwanted token stays with the contract."""
    pool = pools()[name]
    lp = pool.lp_supply // 1000
    plan = program(remove(action, lp_token, ALL, 2, w), out=TOKENS.index(pool.tokens[0]))
    result = run(plan, (TOKENS[lp_token], lp))
    first, second = pool.burn(lp).amounts
    assert result.amount_out == first
    assert result.kept == {pool.tokens[1]: second}
    assert result.pools[name].lp_supply == pool.lp_supply - lp


def test_a_withdrawal_must_name_the_number_of_tokens() -> None:
    """The contract passes one minimum per token; a wrong count cannot be executed."""
    plan = program(remove(Action.JEX_STABLE_REMOVE, LPS, ALL, 3, AS), out=C)
    with pytest.raises(VaultError, match="pays 2 tokens, not 3"):
        run(plan, ("LPS-000004", UNIT))


MIXED = [
    (Action.JEX_STABLE_ADD, "s", AS, LPS, (C, T)),
    (Action.ASH_STABLE_ADD, "a", AA, LPA, (C, T)),
    (Action.ASH_STABLE_ADD, "a", AA, LPA, (C,)),
    (Action.ASH_CRYPTO_ADD, "c", AC, LPC, (W, T)),
    (Action.ASH_CRYPTO_ADD, "c", AC, LPC, (W,)),
]


@pytest.mark.parametrize(("action", "name", "w", "lp", "tokens"), MIXED, ids=lambda x: str(x))
def test_deposits_of_any_mix(action: Action, name: str, w: int, lp: int, tokens: tuple[int, ...]) -> None:
    """Stable and crypto pools take one token or several, in any order, and the LP is the previous result."""
    payments = {WEGLD: 10 * UNIT, USDC: 400 * 10**6, USDT: 300 * 10**6}
    paid = [(TOKENS[token], payments[TOKENS[token]]) for token in tokens]
    plan = program(add(action, tokens, ALL, w), out=lp)
    pool = pools()[name]
    mint = pool.mint(tuple(dict(paid).get(token, 0) for token in pool.tokens))
    result = run(plan, *paid)
    assert (result.token_out, result.amount_out) == (pool.lp_token, mint.lp)
    back = program(add(action, tokens, ALL, w), remove(_removal(action), NONE_INDEX, PREVIOUS, 2, w), out=tokens[0])
    assert 0 < run(back, *paid).amount_out <= sum(amount for _, amount in paid)


def _removal(action: Action) -> Action:
    return Action(action + 1)


def zapped(pool: Pool, fee: FeeModel, first: int, second: int) -> tuple[int, list[int], Pool]:
    """(LP, leftovers, pool) of the contract's way to deposit, put together from its parts."""
    sold, amount = balancing_swap(first, second, (pool.reserves[0], pool.reserves[1]), fee)
    held = [first, second]
    if amount:
        outcome = pool.swap(sold, 1 - sold, amount)
        held[sold] -= amount
        held[1 - sold] += outcome.amount_out
        pool = outcome.pool
    mint = pool.mint((held[0], held[1]))
    return mint.lp, [held[k] - mint.used[k] for k in (0, 1)], mint.pool


ZAPS = [
    ("x", add(Action.XEXCHANGE_ADD, (W, C), ALL), LPX, FeeModel(True, 300, 50, 100_000), 50 * UNIT, 3 * 10**9),
    ("x", add(Action.XEXCHANGE_ADD, (W, C), ALL), LPX, FeeModel(True, 300, 50, 100_000), UNIT, 10**10),
    ("o", add(Action.ONEDEX_ADD, (M, C), ALL, 9), LPO, FeeModel(True, 100, 50, 10_000), 10**9 * UNIT, 10**8),
    ("o", add(Action.ONEDEX_ADD, (M, C), ALL, 9), LPO, FeeModel(True, 100, 50, 10_000), 10**6 * UNIT, 10**9),
    ("j", add(Action.JEX_ADD, (C, W), ALL, AJ), LPJ, FeeModel(False, 40, 20, 10_000), 10**10, UNIT),
    ("j", add(Action.JEX_ADD, (C, W), ALL, AJ), LPJ, FeeModel(False, 40, 20, 10_000), 10**8, 20 * UNIT),
]


@pytest.mark.parametrize(
    ("name", "step", "lp", "fee", "first", "second"), ZAPS, ids=[f"{z[0]}-{k}" for k, z in enumerate(ZAPS)]
)
def test_deposits_into_pairs_are_balanced_first(
    name: str, step: Instruction, lp: int, fee: FeeModel, first: int, second: int
) -> None:
    """One swap in the same pool, one deposit; OneDex is modelled with the fee on the input whatever its side."""
    pool = pools()[name]
    result = run(program(step, out=lp), (pool.tokens[0], first), (pool.tokens[1], second))
    minted, left, after = zapped(pool, fee, first, second)
    assert (result.token_out, result.amount_out) == (pool.lp_token, minted)
    assert result.kept == {pool.tokens[k]: left[k] for k in (0, 1) if left[k]}
    assert result.pools == {name: after}
    unbalanced = pool.mint((first, second)).lp
    assert minted > unbalanced
    assert result.steps[0].fees[0].amount > 0
    balancing = result.steps[0].balancing
    assert balancing is not None and balancing.sold is not None
    assert balancing.left == tuple(Asset(pool.tokens[k], left[k]) for k in (0, 1) if left[k])
    assert 0 < balancing.loops <= (first, second)[pool.index(balancing.sold.token)].bit_length()


def test_each_instruction_is_told_when_it_is_done_and_the_run_may_be_ended() -> None:
    """Whoever watches sees the steps in order, before the minimum is looked at, and ends the run by raising."""
    plan = program(
        swap(Action.XEXCHANGE_SWAP, W, C, ALL), swap(Action.JEX_SWAP, C, NONE_INDEX, ALL, AJ), out=W, minimum=10**40
    )
    paid, seen = [TokenPayment(WEGLD, 0, UNIT)], []
    with pytest.raises(VaultError, match="Slippage"):
        execute(plan, paid, market(), watch=lambda step: seen.append(step.pool_id))
    assert seen == ["x", "j"]

    def end(step: Step) -> None:
        raise KeyboardInterrupt(step.pool_id)

    with pytest.raises(KeyboardInterrupt, match="x"):
        execute(plan, paid, market(), watch=end)


def test_lp_that_is_not_the_output_is_lost() -> None:
    """Of a balanced deposit only the output token returns to the vault, be it a leftover."""
    step = add(Action.XEXCHANGE_ADD, (W, C), ALL)
    minted, left, _ = zapped(pools()["x"], FeeModel(True, 300, 50, 100_000), 50 * UNIT, 3 * 10**9)
    paid = ((WEGLD, 50 * UNIT), (USDC, 3 * 10**9))
    spent = program(step, out=M)
    result = run(spent, *paid, (MEX, 1))
    assert result.kept[pools()["x"].lp_token] == minted
    k = 0 if left[0] else 1
    leftover = run(program(step, out=(W, C)[k], minimum=0), *paid)
    assert leftover.amount_out == left[k]
    follow_up = program(step, swap(Action.UNWRAP, NONE_INDEX, EGLD_INDEX, PREVIOUS), out=LPX)
    with pytest.raises(VaultError, match="PrevAmount not available"):
        run(follow_up, *paid)


def test_deposits_need_the_order_of_the_pool() -> None:
    """The exchanges read their payments by position."""
    paid = ((WEGLD, UNIT), (USDC, 10**9))
    for step in (add(Action.XEXCHANGE_ADD, (C, W), ALL), add(Action.JEX_ADD, (W, C), ALL, AJ)):
        with pytest.raises(VaultError, match="pool's order"):
            run(program(step, out=LPX), *paid)
    with pytest.raises(VaultError, match="OneDex pair 10 does not exist"):
        run(program(add(Action.ONEDEX_ADD, (M, C), ALL, 10), out=LPO), (MEX, UNIT), (USDC, 10**9))


# Any program


SWAPS = [
    (Action.XEXCHANGE_SWAP, AUTO, (W, C)),
    (Action.XEXCHANGE_SWAP, AUTO, (M, W)),
    (Action.ONEDEX_SWAP, AUTO, (M, C)),
    (Action.JEX_SWAP, AJ, (C, W)),
    (Action.JEX_STABLE_SWAP, AS, (C, T)),
    (Action.ASH_STABLE_SWAP, AA, (C, T)),
    (Action.ASH_CRYPTO_SWAP, AC, (T, W)),
]


@st.composite
def plans(draw: st.DrawFn) -> Program:
    """Programs that mostly run: what is used is there, be it a part, a fixed amount or all of it."""
    held = {W, C, M, LPX, LPO, LPJ, LPS, LPA, LPC}
    steps = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            action, _, w, lp, tokens = draw(st.sampled_from(MIXED))
            if held.issuperset(tokens):
                steps.append(add(action, tokens, ppm(1), w))
                held.add(lp)
        elif kind == 1:
            action, lp, name, w = draw(st.sampled_from(REMOVALS))
            if lp in held:
                steps.append(remove(action, lp, ppm(1), 2, w))
                held |= {TOKENS.index(token) for token in pools()[name].tokens}
        elif kind == 2:
            step, lp = draw(st.sampled_from(ZAPS))[1:3]
            steps.append(step)
            held -= {W, C, M} & {step.b1, step.b2, step.b3}
        else:
            action, w, pair = draw(st.sampled_from(SWAPS))
            token_in, token_out = draw(st.permutations(pair))
            if token_in in held:
                mode = draw(st.sampled_from((ALL, ppm(1), ppm(1), fixed(0))))
                steps.append(swap(action, token_in, token_out, mode, w))
                held.add(token_out)
                if mode == ALL:
                    held.discard(token_in)
    out = draw(st.sampled_from(sorted(held)))
    return program(*steps, out=out, amounts=(10**6, 300_000), minimum=0)


@given(plans(), st.integers(1, 10**11), st.integers(1, 10**24))
@settings(max_examples=300, deadline=None)
def test_tokens_are_conserved(plan: Program, usdc: int, wegld: int) -> None:
    """Per token: what came in is paid, kept, in the pools, or was withheld as a fee; never more than came in."""
    lp_paid = [(pools()[name].lp_token, pools()[name].lp_supply // 100) for name in "xojsac"]
    paid = [(USDC, usdc), (WEGLD, wegld), (MEX, 10**6 * UNIT), *lp_paid]
    try:
        result = run(plan, *paid)
    except VaultError:
        return
    before, after = pools(), pools() | result.pools
    fees: dict[str, int] = {}
    for step in result.steps:
        for fee in step.fees:
            fees[fee.token] = fees.get(fee.token, 0) + fee.amount
    for token in (USDC, WEGLD, USDT, MEX):
        held = [sum(p.reserves[p.index(token)] for p in book.values() if token in p.tokens) for book in (before, after)]
        given_in = dict(paid).get(token, 0)
        given_out = result.kept.get(token, 0) + (result.amount_out if token == result.token_out else 0)
        missing = given_in + held[0] - given_out - held[1]
        # AshSwap's deposits hand a part of their imbalance fee to the admin, at most what was deposited
        deposits = [step for step in result.steps if step.action == Action.ASH_STABLE_ADD]
        admin = sum(asset.amount for step in deposits for asset in step.inputs)
        assert 0 <= missing <= fees.get(token, 0) + admin
    for pool_before, pool_after in zip(before.values(), after.values(), strict=True):
        lp = pool_before.lp_token
        given_out = result.kept.get(lp, 0) + (result.amount_out if lp == result.token_out else 0)
        assert dict(paid).get(lp, 0) + pool_after.lp_supply - pool_before.lp_supply == given_out


@given(plans())
@settings(max_examples=100, deadline=None)
def test_what_is_encoded_is_what_runs(plan: Program) -> None:
    """A program read back from its arguments does the same, or reverts with the same words."""
    paid = [(token, 10**12) for token in TOKENS]
    outcomes = []
    for version in (plan, decode_arguments(encode_arguments(plan))):
        try:
            outcomes.append(run(version, *paid))
        except VaultError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
