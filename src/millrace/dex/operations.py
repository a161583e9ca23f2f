"""What each action of the aggregator contract does: one function per way of calling an exchange."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from millrace.chain.token import NATIVE_IN_TRANSFERS
from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import Action, Instruction
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Pool, PoolError, Slice
from millrace.dex.rate import RatePool
from millrace.dex.run import Asset, Balancing, Run, Step, VaultError, sell_slices
from millrace.dex.zap import FeeModel, search

MIN_OUTPUT: Final = 1
MIN_OUTPUT_JEX_STABLE: Final = 2

ONEDEX_FEE_BASE: Final = 10_000
ONEDEX_FEES: Final = {40: 0, 60: 1, 100: 2}
"""Total fees as a OneDex pair's `pair_fee` enumerates them; half of each leaves the pool. A deposit knows no
others."""

ACTIONS: Final = tuple(Action)


def perform(run: Run, instruction: Instruction) -> Step:
    """Withdraw the instruction's inputs, call the exchange, put back what it pays."""
    action = instruction.action
    handler = HANDLERS.get(action)
    if handler is None:
        raise VaultError(f"Invalid action type: {action}")
    wanted = contract.inputs(instruction)
    taken = [run.take(item) for item in wanted] if wanted else [run.withdraw(*run.previous_result())]
    try:
        step = handler(run, instruction, taken)
    except PoolError as error:
        raise VaultError(f"{DEX[action]}: {error}") from error
    if action in ZAPPED:
        return step  # a zap has placed its own results
    if len(step.outputs) == 1:
        run.previous = step.outputs[0]
    for asset in step.outputs:
        run.deposit(asset)
    return step


def _addressed(run: Run, instruction: Instruction) -> Pool:
    action = instruction.action
    if instruction.w % 256 == contract.AUTO:
        raise VaultError(f"{ACTIONS[action].name}: the pool's address is missing")
    address = run.program.addresses[instruction.w]
    pool = run.market.at(address)
    if pool is None:
        raise VaultError(f"{DEX[action]} pool at {address.hex()} does not exist")
    if (pool.exchange, pool.kind) != KIND[action]:
        raise VaultError(f"pool {pool.id} takes no {ACTIONS[action].name}")
    return run.current(pool)


def _xexchange_pair(run: Run, token: str, other: str) -> Pool:
    pool = run.market.xexchange(token, other)
    if pool is None:
        raise VaultError(f"xExchange pair {token} {other} does not exist")
    return run.current(pool)


def _record(
    run: Run,
    instruction: Instruction,
    pool: Pool,
    inputs: Sequence[Asset],
    outputs: Sequence[Asset],
    fees: Sequence[Asset] = (),
    slices: Sequence[Slice] = (),
) -> Step:
    """Keep the pool as it is after the step, and those that slices of its fee were sold in; describe the step."""
    run.pools[pool.id] = pool
    forwarded = sell_slices(slices, run.market.at, run.pools)
    pair_id = pool.pair_id if isinstance(pool, OneDexPool) else None
    action = ACTIONS[instruction.action]
    return Step(
        action=action,
        dex=DEX[action],
        pool_id=pool.id,
        address=pool.address,
        pair_id=pair_id,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        fees=tuple(fees),
        forwarded=forwarded,
    )


def _swap(run: Run, instruction: Instruction, asset: Asset, pool: Pool, token_out: str) -> Step:
    swap = pool.swap(pool.index(asset.token), pool.index(token_out), asset.amount)
    minimum = MIN_OUTPUT_JEX_STABLE if instruction.action == Action.JEX_STABLE_SWAP else MIN_OUTPUT
    if swap.amount_out < minimum:
        raise VaultError("Max slippage exceeded")
    paid = Asset(token_out, swap.amount_out)
    fees = (Asset(swap.fee_token, swap.fee_amount),)
    return _record(run, instruction, swap.pool, (asset,), (paid,), fees, swap.slices)


def _xexchange_swap(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    out = run.token(instruction.b1)
    return _swap(run, instruction, assets[0], _xexchange_pair(run, assets[0].token, out), out)


def _onedex_swap(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    out = run.token(instruction.b1)
    pool = run.market.onedex(assets[0].token, out)
    if pool is None:
        raise VaultError(f"OneDex pair {assets[0].token} {out} does not exist")
    return _swap(run, instruction, assets[0], run.current(pool), out)


def _stable_swap(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    return _swap(run, instruction, assets[0], _addressed(run, instruction), run.token(instruction.b1))


def _two_coin_swap(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    """JEX pairs and AshSwap crypto pools: the output is the other token."""
    pool = _addressed(run, instruction)
    return _swap(run, instruction, assets[0], pool, pool.tokens[1 - pool.index(assets[0].token)])


def _shared_add(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    """Stable and crypto pools take any mix of their tokens."""
    pool = _addressed(run, instruction)
    amounts = [0] * len(pool.tokens)
    for asset in assets:
        amounts[pool.index(asset.token)] += asset.amount
    mint = pool.mint(tuple(amounts))
    if instruction.action == Action.JEX_STABLE_ADD and mint.lp < MIN_OUTPUT_JEX_STABLE:
        raise VaultError("Max slippage exceeded")
    return _record(run, instruction, mint.pool, assets, (Asset(pool.lp_token, mint.lp),))


def _xexchange_add(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    first, second = _pair(assets)
    return _zap(run, instruction, assets, _xexchange_pair(run, first.token, second.token))


def _onedex_add(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    pool = run.market.onedex_pair(instruction.w)
    if pool is None:
        raise VaultError(f"OneDex pair {instruction.w} does not exist")
    if not takes_deposits(pool):
        raise VaultError("storage decode error (key: pair_fee): invalid value")
    return _zap(run, instruction, assets, run.current(pool))


def _jex_add(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    pool = _addressed(run, instruction)
    if not takes_deposits(pool):
        raise VaultError("storage decode error (key: first_token_id): ESDT expected")
    return _zap(run, instruction, assets, pool)


def takes_deposits(pool: Pool) -> bool:
    """Whether the contract can deposit into the pool, and knows what that comes to.

    Of a JEX pair it reads keys that the published one lacks, of a OneDex pair one of three fees.
    """
    if isinstance(pool, OneDexPool):
        leaving = 2 * (pool.special_fee + pool.staking_fee)
        return pool.fee_base == ONEDEX_FEE_BASE and pool.total_fee in ONEDEX_FEES and leaving == pool.total_fee
    return not isinstance(pool, JexPool) or pool.token_id_keys


def _pair(assets: list[Asset]) -> tuple[Asset, Asset]:
    if len(assets) != 2:
        raise VaultError("a deposit into a constant product pool needs both tokens")
    return assets[0], assets[1]


def _zap(run: Run, instruction: Instruction, assets: list[Asset], pool: Pool) -> Step:
    """Balance by one swap in the same pool, deposit once. Only the output token returns to the vault."""
    first, second = _pair(assets)
    if pool.tokens != (first.token, second.token):
        raise VaultError(f"the tokens of {pool.id} must come in the pool's order")
    done = zap(pool, (first.amount, second.amount))
    minted = Asset(pool.lp_token, done.lp)
    for asset in (minted, *(Asset(*left) for left in zip(pool.tokens, done.left, strict=True))):
        if asset.amount and asset.token == run.token(run.program.token_out):
            run.deposit(asset)
        else:
            run.keep(asset)
    step = _record(run, instruction, done.pool, assets, (minted,), done.fees, done.slices)
    left = tuple([Asset(*given) for given in zip(pool.tokens, done.left, strict=True) if given[1]])
    return msgspec.structs.replace(step, balancing=Balancing(done.loops, done.sold, left))


class Zap(NamedTuple):
    """A balanced deposit: LP units, what is left of the two amounts, fees, and the pool afterwards.

    `sold` is what the balancing swap sold, if there was one, `slices` those of its fee, and `loops` what finding it
    took.
    """

    lp: int
    left: tuple[int, int]
    fees: tuple[Asset, ...]
    pool: Pool
    sold: Asset | None = None
    loops: int = 0
    slices: tuple[Slice, ...] = ()


def zap(pool: Pool, amounts: tuple[int, int]) -> Zap:
    """What the contract makes of two amounts for a constant-product pool: one swap in it, then the deposit.

    Raises `PoolError` or `VaultError` where the contract reverts.
    """
    have = list(amounts)
    fees: tuple[Asset, ...] = ()
    slices: tuple[Slice, ...] = ()
    sale: Asset | None = None
    sold, amount, loops = search(*amounts, (pool.reserves[0], pool.reserves[1]), _fee_model(pool))
    if amount:
        sale = Asset(pool.tokens[sold], amount)
        swap = pool.swap(sold, 1 - sold, amount)
        have[sold] -= amount
        have[1 - sold] += swap.amount_out
        pool, fees, slices = swap.pool, (Asset(swap.fee_token, swap.fee_amount),), swap.slices
    mint = pool.mint((have[0], have[1]))
    left = (have[0] - mint.used[0], have[1] - mint.used[1])
    return Zap(mint.lp, left, fees, mint.pool, sale, loops, slices)


def _fee_model(pool: Pool) -> FeeModel:
    if isinstance(pool, XExchangePool):
        return FeeModel(True, pool.total_fee, pool.special_fee, pool.fee_base)
    if isinstance(pool, OneDexPool):
        return FeeModel(True, pool.total_fee, pool.special_fee + pool.staking_fee, pool.fee_base)
    if isinstance(pool, JexPool):
        return FeeModel(False, pool.lp_fee + pool.platform_fee, pool.lp_fee, pool.fee_base)
    raise VaultError(f"pool {pool.id} is no constant product pool")


def _remove(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    return _burn(run, instruction, assets[0], _addressed(run, instruction))


def _onedex_remove(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    pool = run.market.onedex_lp(assets[0].token)
    if pool is None:
        raise VaultError(f"no OneDex pair has the LP token {assets[0].token}")
    return _burn(run, instruction, assets[0], run.current(pool))


def _burn(run: Run, instruction: Instruction, asset: Asset, pool: Pool) -> Step:
    if asset.token != pool.lp_token:
        raise VaultError(f"Invalid LP token: {asset.token} is not the LP token of {pool.id}")
    if instruction.action in contract.COUNTED_REMOVE and instruction.b1 != len(pool.tokens):
        raise VaultError(f"pool {pool.id} pays {len(pool.tokens)} tokens, not {instruction.b1}")
    burn = pool.burn(asset.amount)
    if min(burn.amounts) < MIN_OUTPUT:
        raise VaultError("Max slippage exceeded")
    outputs = [Asset(token, amount) for token, amount in zip(pool.tokens, burn.amounts, strict=True)]
    return _record(run, instruction, burn.pool, (asset,), outputs)


def _wrapper(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    wrapping = instruction.action == Action.WRAP
    source, target = NATIVE_IN_TRANSFERS, run.market.wrapped
    if not wrapping:
        source, target = target, source
    asset = assets[0]
    if len(assets) != 1 or asset.token != source:
        raise VaultError(f"the wrapper takes {source}, got {asset.token}")
    action = ACTIONS[instruction.action]
    paid = Asset(target, asset.amount)
    return Step(action, DEX[action], "", run.market.wrapper, None, (asset,), (paid,))


def _at_a_rate(run: Run, instruction: Instruction, assets: list[Asset]) -> Step:
    """Liquid staking and money markets. Those that take EGLD take no wrapped EGLD, and the other way round."""
    action, asset = instruction.action, assets[0]
    native = asset.token == NATIVE_IN_TRANSFERS
    pool = run.market.rated(*RATED[action], run.market.wrapped if native else asset.token)
    if len(assets) != 1 or not isinstance(pool, RatePool) or pool.native != native:
        raise VaultError(f"{ACTIONS[action].name}: no such market here")
    if action in contract.NAMES_OUTPUT and run.token(instruction.b1) != pool.tokens[1]:
        raise VaultError(f"{ACTIONS[action].name}: {pool.id} pays {pool.tokens[1]}")
    pool = run.current(pool)
    swap = pool.swap(0, 1, asset.amount)
    return _record(run, instruction, swap.pool, assets, (Asset(pool.tokens[1], swap.amount_out),))


RATED: Final[dict[int, tuple[str, str]]] = {
    Action.XOXNO_STAKE: ("XOXNO", "stake"),
    Action.LXOXNO_STAKE: ("LXOXNO", "stake"),
    Action.HATOM_STAKE: ("Hatom", "stake"),
    Action.HATOM_REDEEM: ("Hatom", "redeem"),
    Action.HATOM_SUPPLY: ("Hatom", "supply"),
}
"""Exchange and kind of the pool behind an action that trades at a rate."""

Handler = Callable[[Run, Instruction, list[Asset]], Step]

HANDLERS: Final[dict[int, Handler]] = {
    Action.XEXCHANGE_SWAP: _xexchange_swap,
    Action.XEXCHANGE_ADD: _xexchange_add,
    Action.XEXCHANGE_REMOVE: _remove,
    Action.ASH_STABLE_SWAP: _stable_swap,
    Action.ASH_STABLE_ADD: _shared_add,
    Action.ASH_STABLE_REMOVE: _remove,
    Action.ASH_CRYPTO_SWAP: _two_coin_swap,
    Action.ASH_CRYPTO_ADD: _shared_add,
    Action.ASH_CRYPTO_REMOVE: _remove,
    Action.ONEDEX_SWAP: _onedex_swap,
    Action.ONEDEX_ADD: _onedex_add,
    Action.ONEDEX_REMOVE: _onedex_remove,
    Action.JEX_SWAP: _two_coin_swap,
    Action.JEX_ADD: _jex_add,
    Action.JEX_REMOVE: _remove,
    Action.JEX_STABLE_SWAP: _stable_swap,
    Action.JEX_STABLE_ADD: _shared_add,
    Action.JEX_STABLE_REMOVE: _remove,
    Action.WRAP: _wrapper,
    Action.UNWRAP: _wrapper,
    Action.XOXNO_STAKE: _at_a_rate,
    Action.LXOXNO_STAKE: _at_a_rate,
    Action.HATOM_STAKE: _at_a_rate,
    Action.HATOM_REDEEM: _at_a_rate,
    Action.HATOM_SUPPLY: _at_a_rate,
}

ZAPPED: Final = frozenset({Action.XEXCHANGE_ADD, Action.ONEDEX_ADD, Action.JEX_ADD})


def _family(first: Action, last: Action, name: str) -> dict[int, str]:
    return {action: name for action in Action if first <= action <= last}


DEX: Final[dict[int, str]] = {
    **_family(Action.XEXCHANGE_SWAP, Action.XEXCHANGE_REMOVE, "xExchange"),
    **_family(Action.ASH_STABLE_SWAP, Action.ASH_CRYPTO_REMOVE, "AshSwap"),
    **_family(Action.ONEDEX_SWAP, Action.ONEDEX_REMOVE, "OneDex"),
    **_family(Action.JEX_SWAP, Action.JEX_STABLE_REMOVE, "JEX"),
    **_family(Action.WRAP, Action.UNWRAP, "wrapper"),
    **_family(Action.XOXNO_STAKE, Action.HATOM_SUPPLY, "staking"),
}
"""Name of the exchange an action uses, as quotes spell it."""

KIND: Final[dict[int, tuple[str, str]]] = {
    Action.XEXCHANGE_REMOVE: ("XExchange", "constant_product"),
    Action.ASH_STABLE_SWAP: ("AshSwap", "stable"),
    Action.ASH_STABLE_ADD: ("AshSwap", "stable"),
    Action.ASH_STABLE_REMOVE: ("AshSwap", "stable"),
    Action.ASH_CRYPTO_SWAP: ("AshSwap", "crypto"),
    Action.ASH_CRYPTO_ADD: ("AshSwap", "crypto"),
    Action.ASH_CRYPTO_REMOVE: ("AshSwap", "crypto"),
    Action.JEX_SWAP: ("Jex", "constant_product"),
    Action.JEX_ADD: ("Jex", "constant_product"),
    Action.JEX_REMOVE: ("Jex", "constant_product"),
    Action.JEX_STABLE_SWAP: ("Jex", "stable"),
    Action.JEX_STABLE_ADD: ("Jex", "stable"),
    Action.JEX_STABLE_REMOVE: ("Jex", "stable"),
}
"""Exchange and kind of pool that an action with an address must find there."""
