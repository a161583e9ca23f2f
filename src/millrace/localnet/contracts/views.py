"""Views from which a reader can rebuild every pool, in the layouts of the live contracts.

Layouts: xExchange `mx-exchange-sc` (pair, router), OneDex's deployed interface (a pair ends in eight bytes, the last
four its fee), JEX `getStatus`, AshSwap's published interfaces, the system contract's `getTokenProperties`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from millrace.chain.abi import (
    nested_biguint,
    nested_bool,
    nested_bytes,
    nested_list,
    nested_option,
    nested_uint,
    top_bool,
    top_uint,
)
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Pool, PoolState
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.localnet.contracts.frame import Arguments, ContractError, State, View

NOBODY: Final = bytes(32)
MAX_PAGE: Final = 1000

STATES: Final = {PoolState.INACTIVE: 0, PoolState.ACTIVE: 1, PoolState.NO_SWAPS: 2}
"""State enumeration of xExchange, OneDex and AshSwap alike."""
POOL_TYPES: Final = {"plain": 0, "lending": 1, "meta": 2}


def token_properties(tokens: Mapping[str, tuple[str, int]]) -> dict[str, View]:
    """Properties of tokens; `tokens` holds name and decimals by identifier. Nobody owns them."""

    def properties(state: State, args: Arguments) -> list[bytes]:
        token = args.token()
        if token not in tokens:
            raise ContractError("no ticker with given name")
        name, decimals = tokens[token]
        flags = ("IsPaused-false", "CanUpgrade-false", "CanMint-true", "CanBurn-true")
        texts = (f"NumDecimals-{decimals}", *flags)
        return [name.encode(), b"FungibleESDT", NOBODY, b"0", b"0", *(text.encode() for text in texts)]

    return {"getTokenProperties": properties}


def _shown(pool_id: str, show: Callable[[Any], bytes]) -> View:
    """A view without arguments that shows one value of a pool."""

    def view(state: State, args: Arguments) -> list[bytes]:
        return [show(state.ledger.pool(pool_id))]

    return view


def _texts(values: tuple[str, ...]) -> bytes:
    return b"".join(nested_bytes(value.encode()) for value in values)


def _numbers(values: tuple[int, ...]) -> bytes:
    return b"".join(nested_biguint(value) for value in values)


def xexchange_pair(pool_id: str) -> dict[str, View]:
    """What a pair tells beside its reserves."""
    return {
        "getState": _shown(pool_id, lambda pool: top_uint(STATES[pool.state])),
        "getTotalFeePercent": _shown(pool_id, lambda pool: top_uint(pool.total_fee)),
        "getSpecialFee": _shown(pool_id, lambda pool: top_uint(pool.special_fee)),
        "getFeeState": _shown(pool_id, lambda pool: top_bool(pool.fee_enabled)),
        "getLpTokenIdentifier": _shown(pool_id, lambda pool: pool.lp_token.encode()),
        "getFirstTokenId": _shown(pool_id, lambda pool: pool.tokens[0].encode()),
        "getSecondTokenId": _shown(pool_id, lambda pool: pool.tokens[1].encode()),
        **_fee_setup(pool_id),
    }


def _fee_setup(pool_id: str) -> dict[str, View]:
    """Where a pair's special fee goes (`mx-exchange-sc`, pair contract, fee module); what is not known is nothing."""

    def listed(show: Callable[[XExchangePool], list[bytes]]) -> View:
        def view(state: State, args: Arguments) -> list[bytes]:
            pool = state.ledger.pool(pool_id)
            assert isinstance(pool, XExchangePool)
            return show(pool)

        return view

    return {
        "getFeesCollectorAddress": listed(lambda pool: [_fees_collector(pool)]),
        "getFeesCollectorCutPercentage": listed(lambda pool: [top_uint(pool.fees_collector_cut)]),
        "getFeeDestinations": listed(
            lambda pool: [to.address + _texts((to.token,)) for to in pool.fee_destinations or ()]
        ),
        "getTrustedSwapPairs": listed(lambda pool: [_texts(to.tokens) + to.address for to in pool.trusted_pairs or ()]),
    }


def _fees_collector(pool: XExchangePool) -> bytes:
    if not pool.fees_collector:
        # The live view loads a value that was never stored, and nothing is no address.
        raise ContractError("storage decode error (key: feesCollectorAddress): bad array length")
    return pool.fees_collector


def xexchange_router(pool_ids: tuple[str, ...]) -> dict[str, View]:
    """The list of pairs: first token, second token, address of each."""

    def metadata(state: State, args: Arguments) -> list[bytes]:
        pools = [state.ledger.pool(pool_id) for pool_id in pool_ids]
        return [_texts(pool.tokens) + pool.address for pool in pools]

    def addresses(state: State, args: Arguments) -> list[bytes]:
        return [state.ledger.pool(pool_id).address for pool_id in pool_ids]

    return {"getAllPairContractMetadata": metadata, "getAllPairsManagedAddresses": addresses}


def onedex(pool_ids: Mapping[int, str], main_tokens: tuple[str, ...]) -> dict[str, View]:
    """The one contract with all pairs; `pool_ids` is by pair id."""

    def page(state: State, args: Arguments) -> list[bytes]:
        start, size = args.number(), min(args.number(), MAX_PAGE)
        ids = list(pool_ids.values())[start : start + size]
        return [_onedex_pair(state.ledger.pool(pool_id)) for pool_id in ids]

    def one(state: State, args: Arguments) -> list[bytes]:
        pair_id = args.number()
        if pair_id not in pool_ids:
            raise ContractError(f"no pair has the id {pair_id}")
        return [_onedex_pair(state.ledger.pool(pool_ids[pair_id]))]

    def constant(*values: bytes) -> View:
        return lambda state, args: list(values)

    return {
        "viewPairsPaginated": page,
        "viewPair": one,
        "getLastPairId": constant(top_uint(max(pool_ids, default=0))),
        "getMainPairTokens": constant(*(token.encode() for token in main_tokens)),
        # Of the whole contract, before every pair had a fee of its own.
        "getTotalFeePercent": constant(top_uint(30)),
        "getSpecialFeePercent": constant(top_uint(1)),
        "getStakingRewardFeePercent": constant(top_uint(9)),
    }


def _onedex_pair(pool: Pool) -> bytes:
    assert isinstance(pool, OneDexPool)
    return b"".join(
        (
            nested_uint(pool.pair_id, 4),
            nested_uint(STATES[pool.state], 1),
            nested_bool(pool.enabled),
            NOBODY,  # owner
            _texts((*pool.tokens, pool.lp_token)),
            nested_uint(pool.lp_decimals, 4),
            _numbers((*pool.reserves, pool.lp_supply)),
            nested_bool(True),  # the contract may mint the LP token
            nested_uint(pool.total_fee, 8),
        )
    )


def jex_status(pool: Pool) -> bytes:
    """`getStatus` of a pair. No statistics are kept: volumes and fees are zero."""
    assert isinstance(pool, JexPool)
    held = zip(pool.tokens, pool.reserves, strict=True)
    return b"".join(
        (
            nested_bool(pool.state != PoolState.ACTIVE),
            *[nested_bytes(token.encode()) + nested_biguint(reserve) for token, reserve in held],
            nested_bytes(pool.lp_token.encode()) + nested_biguint(pool.lp_supply),
            NOBODY,  # owner
            nested_uint(pool.lp_fee, 4) + nested_uint(pool.platform_fee, 4),
            nested_option(None),  # receiver of the platform's fees
            _numbers((0,) * 6),
        )
    )


def jex_stable_status(pool: Pool) -> bytes:
    """`getStatus` of a stable pool. No statistics are kept: volumes and fees are zero."""
    assert isinstance(pool, JexStablePool)
    count = len(pool.tokens)
    return b"".join(
        (
            nested_bool(pool.state != PoolState.ACTIVE),
            nested_uint(pool.amp, 4) + nested_uint(count, 4),
            nested_list(nested_bytes(token.encode()) for token in pool.tokens),
            nested_list(map(nested_biguint, pool.reserves)),
            nested_bytes(pool.lp_token.encode()) + nested_biguint(pool.lp_supply),
            NOBODY,  # owner
            nested_uint(pool.swap_fee, 4),
            nested_option(None),  # receiver of the platform's fees
            nested_list([nested_biguint(0)] * count) * 3,
            nested_list(map(nested_biguint, pool.prices)),
        )
    )


def jex(pool_id: str, status: Callable[[Pool], bytes]) -> dict[str, View]:
    """JEX contracts tell everything in one view."""
    return {"getStatus": _shown(pool_id, status)}


def ash_stable(pool_id: str) -> dict[str, View]:
    """An AshSwap stable pool, value by value."""

    def of_token(show: Callable[[AshStablePool, int], int]) -> View:
        def view(state: State, args: Arguments) -> list[bytes]:
            pool = state.ledger.pool(pool_id)
            assert isinstance(pool, AshStablePool)
            value = show(pool, pool.index(args.token()))
            if args.rest():  # a price may be asked for an amount, over 10^18
                value = value * args.number() // 10**18
            return [top_uint(value)]

        return view

    return {
        "getTokens": _shown(pool_id, lambda pool: _texts(pool.tokens)),
        "getAmpFactor": _shown(pool_id, lambda pool: top_uint(pool.amp)),
        "getSwapFeePercent": _shown(pool_id, lambda pool: top_uint(pool.swap_fee)),
        "getAdminFeePercent": _shown(pool_id, lambda pool: top_uint(pool.admin_fee)),
        "getState": _shown(pool_id, lambda pool: top_uint(STATES[pool.state])),
        "getTotalSupply": _shown(pool_id, lambda pool: top_uint(pool.lp_supply)),
        "getLpTokenIdentifier": _shown(pool_id, lambda pool: pool.lp_token.encode()),
        "getPoolType": _shown(pool_id, lambda pool: top_uint(POOL_TYPES.get(pool.pool_type, 0))),
        "getBalances": of_token(lambda pool, index: pool.reserves[index]),
        "getTokenPrice": of_token(lambda pool, index: pool.prices[index]),
    }


def ash_crypto(pool_id: str) -> dict[str, View]:
    """An AshSwap crypto pool, value by value."""
    numbers: dict[str, Callable[[Any], int]] = {
        "getA": lambda pool: pool.ann,
        "getGamma": lambda pool: pool.gamma,
        "getD": lambda pool: pool.d,
        "getPriceScale": lambda pool: pool.price_scale,
        "getMidFee": lambda pool: pool.mid_fee,
        "getOutFee": lambda pool: pool.out_fee,
        "getFeeGamma": lambda pool: pool.fee_gamma,
        "getAdminFee": lambda pool: pool.admin_fee,
        "getFutureAGammaTime": lambda pool: int(pool.ramping),
        "getLpTokenSupply": lambda pool: pool.lp_supply,
        "getState": lambda pool: STATES[pool.state],
    }
    views = {name: _shown(pool_id, _top(show)) for name, show in numbers.items()}
    views["getTokens"] = _shown(pool_id, lambda pool: _texts(pool.tokens))
    views["getBalances"] = _shown(pool_id, lambda pool: _numbers(pool.reserves))
    views["getLpTokenIdentifier"] = _shown(pool_id, lambda pool: pool.lp_token.encode())
    return views


def _top(show: Callable[[Any], int]) -> Callable[[Any], bytes]:
    return lambda pool: top_uint(show(pool))
