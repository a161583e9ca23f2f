"""What exchanges' contracts store, under the names of the published ones: other contracts and gateways read it by key.

Names: `mx-exchange-sc` (pair), OneDex's public copies, `jex-sc-dex-pair`. The aggregator contract reads a pair's
tokens, reserves and fees here before it deposits into it. Of a JEX pair it reads `first_token_id` and
`second_token_id`, and the published pair has `first_token` and `second_token`: a deposit reverts there.
"""

from millrace.chain.abi import nested_bytes, nested_uint, top_uint
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.operations import ONEDEX_FEES
from millrace.dex.pool import Pool


def of_pool(pool: Pool) -> dict[bytes, bytes]:
    """The keys and top-encoded values of a constant-product pool; the others' are not public."""
    if isinstance(pool, XExchangePool):
        return _xexchange(pool)
    if isinstance(pool, OneDexPool):
        return _onedex(pool)
    return _jex(pool) if isinstance(pool, JexPool) else {}


def _xexchange(pool: XExchangePool) -> dict[bytes, bytes]:
    first, second = (token.encode() for token in pool.tokens)
    reserves = {
        b"reserve" + nested_bytes(token.encode()): top_uint(reserve)
        for token, reserve in zip(pool.tokens, pool.reserves, strict=True)
    }
    return {
        b"first_token_id": first,
        b"second_token_id": second,
        **reserves,
        b"total_fee_percent": top_uint(pool.total_fee),
        b"special_fee_percent": top_uint(pool.special_fee),
    }


def _onedex(pool: OneDexPool) -> dict[bytes, bytes]:
    first, second = (token.encode() for token in pool.tokens)
    number = nested_uint(pool.pair_id, 4)
    fee = ONEDEX_FEES.get(pool.total_fee)
    return {
        b"pair_first_token_id" + number: first,
        b"pair_second_token_id" + number: second,
        b"pair_first_token_reserve" + number: top_uint(pool.reserves[0]),
        b"pair_second_token_reserve" + number: top_uint(pool.reserves[1]),
        **({} if fee is None else {b"pair_fee" + number: top_uint(fee)}),
    }


def _jex(pool: JexPool) -> dict[bytes, bytes]:
    first, second = (token.encode() for token in pool.tokens)
    found = {
        b"first_token": first,
        b"second_token": second,
        b"first_token_reserve": top_uint(pool.reserves[0]),
        b"second_token_reserve": top_uint(pool.reserves[1]),
        b"liq_providers_fees": top_uint(pool.lp_fee),
        b"platform_fees": top_uint(pool.platform_fee),
    }
    return found | {b"first_token_id": first, b"second_token_id": second} if pool.token_id_keys else found
