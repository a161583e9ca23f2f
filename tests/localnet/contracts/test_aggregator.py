"""The aggregator contract: the ledger must follow the vault to the last unit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS
from millrace.dex import aggregator_contract as xo
from millrace.dex.aggregator_contract import ALL, CONTRACT, EGLD_INDEX, Action, Instruction, Program
from millrace.dex.constant_product import JexPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.vault import VaultError, execute
from millrace.localnet.market.market import REFERRALS, WRAPPED

SWAPS = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_SWAP,
    ("OneDex", "constant_product"): Action.ONEDEX_SWAP,
    ("Jex", "constant_product"): Action.JEX_SWAP,
    ("Jex", "stable"): Action.JEX_STABLE_SWAP,
    ("AshSwap", "stable"): Action.ASH_STABLE_SWAP,
    ("AshSwap", "crypto"): Action.ASH_CRYPTO_SWAP,
}
ADDS = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_ADD,
    ("OneDex", "constant_product"): Action.ONEDEX_ADD,
    ("Jex", "constant_product"): Action.JEX_ADD,
    ("Jex", "stable"): Action.JEX_STABLE_ADD,
    ("AshSwap", "stable"): Action.ASH_STABLE_ADD,
    ("AshSwap", "crypto"): Action.ASH_CRYPTO_ADD,
}
REMOVES = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_REMOVE,
    ("OneDex", "constant_product"): Action.ONEDEX_REMOVE,
    ("Jex", "constant_product"): Action.JEX_REMOVE,
    ("Jex", "stable"): Action.JEX_STABLE_REMOVE,
    ("AshSwap", "stable"): Action.ASH_STABLE_REMOVE,
    ("AshSwap", "crypto"): Action.ASH_CRYPTO_REMOVE,
}


class Writer:
    """Writes a program instruction by instruction."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.addresses: list[bytes] = []
        self.amounts: list[int] = []
        self.instructions: list[Instruction] = []

    def token(self, token: str) -> int:
        if token in (NATIVE, NATIVE_IN_TRANSFERS):
            return EGLD_INDEX
        if token not in self.tokens:
            self.tokens.append(token)
        return self.tokens.index(token)

    def address(self, pool: Pool, action: Action) -> int:
        if action not in xo.NEEDS_ADDRESS:
            return xo.AUTO
        self.addresses.append(pool.address)
        return len(self.addresses) - 1

    def share(self, ppm: int) -> int:
        self.amounts.append(ppm)
        return xo.ppm(len(self.amounts) - 1)

    def swap(self, pool: Pool, token_in: str, token_out: str, mode: int = ALL) -> None:
        action = SWAPS[pool.exchange, pool.kind]
        w = self.address(pool, action)
        self.instructions.append(xo.swap(action, self.token(token_in), self.token(token_out), mode, w))

    def add(self, pool: Pool) -> None:
        action = ADDS[pool.exchange, pool.kind]
        w = pool.pair_id if action == Action.ONEDEX_ADD else self.address(pool, action)  # type: ignore[attr-defined]
        self.instructions.append(xo.add(action, [self.token(token) for token in pool.tokens], ALL, w))

    def remove(self, pool: Pool) -> None:
        action = REMOVES[pool.exchange, pool.kind]
        w = self.address(pool, action)
        self.instructions.append(xo.remove(action, self.token(pool.lp_token), ALL, len(pool.tokens), w))

    def wrap(self, action: Action) -> None:
        token = EGLD_INDEX if action == Action.WRAP else self.token(WRAPPED)
        self.instructions.append(xo.swap(action, token, 0, ALL))

    def program(self, token_out: str, minimum: int = 1, referral: int = 0) -> Program:
        out = self.token(token_out)
        return Program(
            tuple(self.tokens),
            tuple(self.addresses),
            tuple(self.amounts),
            tuple(self.instructions),
            minimum,
            out,
            referral,
        )


def random_program(world: Any, dice: random.Random) -> tuple[Program, list[tuple[str, int]]]:
    """A walk through random pools: part of the held token moves on at each step, LP at the end now and then."""
    write = Writer()
    pools = list(world.ledger.pools.values())
    start = dice.choice([NATIVE, WRAPPED, dice.choice(world.market.tokens).identifier, "LP"])
    if start == "LP":
        pool = dice.choice([pool for pool in pools if world.held(pool.lp_token) > 100])
        pay = [(pool.lp_token, max(world.held(pool.lp_token) // dice.choice([3, 1000]), 1))]
        write.remove(pool)
        held = dice.choice(pool.tokens)
    elif start == NATIVE:
        pay, held = [(NATIVE, dice.randrange(1, 10**20))], WRAPPED
        write.wrap(Action.WRAP)
    else:
        amount = max(pool.reserves[pool.index(start)] // 100 for pool in pools if start in pool.tokens)
        pay, held = [(start, max(amount // dice.choice([1, 100, 10**5]), 1))], start
    for _ in range(dice.randrange(1, 5)):
        around = [pool for pool in pools if held in pool.tokens]
        pool = dice.choice(around)
        token_out = dice.choice([token for token in pool.tokens if token != held])
        mode = ALL if dice.random() < 0.6 else write.share(dice.randrange(1, 1_000_001))
        write.swap(pool, held, token_out, mode)
        kind = dice.random()
        if kind < 0.25 and mode != ALL:
            write.add(pool)
            return write.program(pool.lp_token, referral=dice.choice([0, 1, 2, 3])), pay
        if kind < 0.35 and mode != ALL and len(pool.tokens) == 2:
            write.add(pool)
            return write.program(dice.choice(pool.tokens)), pay
        held = token_out
    if held == WRAPPED and dice.random() < 0.5:
        write.wrap(Action.UNWRAP)
        held = NATIVE
    return write.program(held, referral=dice.choice([0, 1, 2, 3])), pay


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_ledger_follows_the_vault(seed: int, new_world: Callable[[], Any]) -> None:
    """The caller gets what the vault says, the contract keeps what it says; nothing but slices of fees is lost."""
    world, dice = new_world(), random.Random(seed)
    lp_tokens = set(world.market.lp_tokens)
    for _ in range(8):
        program, pay = random_program(world, dice)
        referral = {item.id: item for item in REFERRALS}.get(program.referral_id)
        snapshot = DictMarket(list(world.ledger.pools.values()), WRAPPED, world.at.wrapper)
        try:
            expected = execute(program, [TokenPayment(token, 0, amount) for token, amount in pay], snapshot, referral)
        except VaultError as error:
            expected = None
            text = str(error)
        before, totals, picture = _holdings(world), world.totals(), world.picture()
        balances = world.balances()
        result = world.call(CONTRACT, "xo", *xo.encode_arguments(program), pay=pay)
        assert result.ok is (expected is not None), result.return_message
        if expected is None:
            assert result.return_message == text
            assert world.picture() == picture
            continue
        assert world.changes(balances) == world.movements(CONTRACT, pay, result.events)
        gained = _difference(_holdings(world), before)
        token_out = expected.token_out.replace(NATIVE_IN_TRANSFERS, NATIVE)
        changes = Counter({token_out: expected.amount_out})
        changes.subtract(dict(pay))
        assert gained[world.alice] == {token: amount for token, amount in changes.items() if amount}
        kept = {token.replace(NATIVE_IN_TRANSFERS, NATIVE): amount for token, amount in expected.kept.items()}
        assert gained[CONTRACT] == {token: amount for token, amount in kept.items() if amount}
        assert {pool_id: world.ledger.pool(pool_id) for pool_id in expected.pools} == expected.pools
        now, burned = world.totals(), world.burned(result.events)
        for token in {*totals, *now} - lp_tokens - {WRAPPED}:
            assert now[token] + burned[token] == totals[token], token
        assert now[WRAPPED] + burned[WRAPPED] - totals[WRAPPED] == gained[world.at.wrapper].get(NATIVE, 0)
        world.check_solvent()


def _holdings(world: Any) -> dict[bytes, Counter[str]]:
    watched = (world.alice, CONTRACT, world.at.wrapper)
    return {
        pubkey: Counter({NATIVE: world.held(NATIVE, pubkey), **world.ledger.account(pubkey).tokens})
        for pubkey in watched
    }


def _difference(now: dict[bytes, Counter[str]], before: dict[bytes, Counter[str]]) -> dict[bytes, Any]:
    result = {}
    for pubkey, held in now.items():
        changes = Counter(held)
        changes.subtract(before[pubkey])
        result[pubkey] = {token: amount for token, amount in changes.items() if amount}
    return result


@pytest.mark.parametrize("sort", SWAPS)
def test_every_kind_of_pool_can_be_crossed_there_and_back(world: Any, sort: tuple[str, str]) -> None:
    """Two swaps through one pool: the second sees what the first left, and fees make it a loss."""
    pool = world.pools(*sort)[0]
    write, (first, second) = Writer(), pool.tokens[:2]
    write.swap(pool, first, second)
    write.swap(pool, second, first)
    amount = pool.reserves[0] // 1000
    before = world.held(first)
    result = world.call(CONTRACT, "xo", *xo.encode_arguments(write.program(first)), pay=[(first, amount)])
    assert result.ok, result.return_message
    assert amount * 9 // 10 < world.held(first) - before + amount < amount
    swaps = [event for event in result.events if event.topics[0].lower().startswith(b"swap")]
    assert {event.address for event in swaps} == {pool.address}
    assert len(swaps) == (4 if sort[0] == "OneDex" else 2)
    assert int.from_bytes(result.results[0]) == world.held(first) - before + amount


@pytest.mark.parametrize("sort", ADDS)
def test_every_kind_of_pool_takes_and_returns_liquidity(world: Any, sort: tuple[str, str]) -> None:
    """Half of the input is sold, both deposited, the LP units redeemed and one side sold again."""
    pool = world.pools(*sort)[0]
    if isinstance(pool, JexPool):
        pool = msgspec.structs.replace(pool, token_id_keys=True)
        world.ledger.put_pools((pool,))
    first, second = pool.tokens[:2]
    write = Writer()
    write.swap(pool, first, second, write.share(400_000))
    write.add(pool)
    amount, before = pool.reserves[0] // 1000, world.held(pool.lp_token)
    result = world.call(CONTRACT, "xo", *xo.encode_arguments(write.program(pool.lp_token)), pay=[(first, amount)])
    assert result.ok, result.return_message
    minted = world.held(pool.lp_token) - before
    assert minted > 0
    world.check_solvent()
    write, before = Writer(), world.held(second)
    write.remove(world.ledger.pool(pool.id))
    result = world.call(CONTRACT, "xo", *xo.encode_arguments(write.program(second)), pay=[(pool.lp_token, minted)])
    assert result.ok, result.return_message
    assert world.held(second) > before
    world.check_solvent()


def test_too_little_output_reverts_with_the_contracts_words(world: Any) -> None:
    """One unit more than the pools pay is a revert that names both amounts."""
    pool = world.pools("OneDex")[0]
    first, second = pool.tokens
    amount = pool.reserves[0] // 500
    out = pool.amount_out(0, 1, amount)
    write = Writer()
    write.swap(pool, first, second)
    before = world.picture()
    arguments = xo.encode_arguments(write.program(second, minimum=out + 1))
    result = world.call(CONTRACT, "xo", *arguments, pay=[(first, amount)])
    assert result.return_message == f"Slippage limit exceeded: have {out}, need {out + 1}"
    assert world.picture() == before
    arguments = xo.encode_arguments(write.program(second, minimum=out))
    assert world.call(CONTRACT, "xo", *arguments, pay=[(first, amount)]).ok


@pytest.mark.parametrize(("referral", "bps"), [(0, (0, 0)), (1, (10, 20)), (2, (0, 0)), (99, (0, 0))])
def test_only_an_active_referral_costs(world: Any, referral: int, bps: tuple[int, int]) -> None:
    """Static and referral fee are taken from the output, each rounded down, and stay with the contract."""
    pool = world.pools("XExchange")[0]
    first, second = pool.tokens
    amount = pool.reserves[0] // 500
    out = pool.amount_out(0, 1, amount)
    write, before = Writer(), world.held(second)
    write.swap(pool, first, second)
    arguments = xo.encode_arguments(write.program(second, referral=referral))
    assert world.call(CONTRACT, "xo", *arguments, pay=[(first, amount)]).ok
    fees = out * bps[0] // 10_000 + out * bps[1] // 10_000
    assert world.held(second) - before == out - fees
    assert world.held(second, CONTRACT) == fees


def test_several_inputs_become_one_output(world: Any) -> None:
    """EGLD and two tokens paid in one call are turned into a fourth token, to the unit."""
    pools = [pool for pool in world.pools("OneDex") if WRAPPED in pool.tokens][:3]
    write, pay = Writer(), [(NATIVE, 10**15)]
    target = pools[0].tokens[1 - pools[0].index(WRAPPED)]
    gathered = 10**15
    for pool in pools[1:]:
        i = 1 - pool.index(WRAPPED)
        amount = pool.reserves[i] // 10_000
        pay.append((pool.tokens[i], amount))
        gathered += pool.amount_out(i, 1 - i, amount)
        write.swap(pool, pool.tokens[i], WRAPPED)
    write.wrap(Action.WRAP)
    write.swap(pools[0], WRAPPED, target)
    i = pools[0].index(WRAPPED)
    expected = pools[0].amount_out(i, 1 - i, gathered)
    before = world.held(target)
    result = world.call(CONTRACT, "xo", *xo.encode_arguments(write.program(target, minimum=expected)), pay=pay)
    assert result.ok, result.return_message
    assert world.held(target) - before == expected
    assert world.ledger.account(CONTRACT).tokens == {}
    world.check_solvent()


def test_gas_grows_with_the_program(world: Any) -> None:
    """Each instruction has its price, which is charged before anything runs."""
    pool = world.pools("OneDex")[0]
    used = []
    for rounds in (1, 2, 3):
        write = Writer()
        for _ in range(rounds):
            write.swap(pool, *pool.tokens)
            write.swap(pool, *reversed(pool.tokens))
        program = write.program(pool.tokens[0])
        result = world.call(
            CONTRACT, "xo", *xo.encode_arguments(program), pay=[(pool.tokens[0], pool.reserves[0] // 100)]
        )
        assert result.ok
        used.append(result.gas_used)
    assert used[1] - used[0] == used[2] - used[1] > 0


def test_a_call_without_payment_or_with_nonsense_reverts(world: Any) -> None:
    """What is no program is a failed call with a reason."""
    for args in ([], [b"\x01"], [b"\x01", b"\xfe", b"", b"\xff\xff\xff\xff"]):
        result = world.call(CONTRACT, "xo", *args, pay=[(WRAPPED, 5)])
        assert not result.ok
        assert result.return_message not in ("", "contract fault")
