"""What the exchanges' contracts log, in their own shapes.

The identifier of an event is the called function, its first topic the event's name. xExchange and JEX stable pools
put the numbers into the data, nested; OneDex puts everything into topics. AshSwap's contracts are closed and JEX
pairs log nothing: both use xExchange's shape here, so that every trade can be seen.
"""

from collections.abc import Sequence

from millrace.chain.abi import nested_biguint, nested_bytes, nested_uint, top_uint
from millrace.dex.constant_product import OneDexPool
from millrace.dex.pool import Pool, Swap
from millrace.dex.stable import JexStablePool
from millrace.localnet.contracts.frame import Frame

Asset = tuple[str, int]


def log_swap(frame: Frame, function: str, trader: bytes, before: Pool, swap: Swap, sold: Asset, paid: Asset) -> None:
    """A swap of `sold` for `paid`: `before` is the pool it met, `swap.pool` the one it left."""
    if isinstance(before, OneDexPool):
        side = "Output" if function.endswith("Output") else "Input"
        log_onedex_swap(frame, function, f"SwapTokensFixed{side}Event", before.address, trader, sold, paid)
        return
    (token_in, amount_in), (token_out, amount_out) = sold, paid
    tokens = (token_in.encode(), token_out.encode())
    pieces = [trader, nested_bytes(tokens[0]), nested_biguint(amount_in)]
    pieces += [nested_bytes(tokens[1]), nested_biguint(amount_out)]
    if isinstance(before, JexStablePool):
        j = before.index(token_out)
        platform_fee = max(before.reserves[j] - amount_out - swap.pool.reserves[j], 0)
        pieces += [nested_biguint(max(swap.fee_amount - platform_fee, 0)), nested_biguint(platform_fee)]
        pieces.append(nested_uint(frame.state.block.timestamp, 8))
        frame.emit(before.address, function, b"swap", *tokens, data=b"".join(pieces))
        return
    after = swap.pool
    pieces.append(nested_biguint(swap.fee_amount))
    pieces += [nested_biguint(after.reserves[after.index(token)]) for token in (token_in, token_out)]
    pieces.append(_when(frame))
    epoch = top_uint(frame.state.block.epoch)
    frame.emit(before.address, function, b"swap", *tokens, trader, epoch, data=b"".join(pieces))


def log_onedex_swap(
    frame: Frame, function: str, name: str, router: bytes, trader: bytes, sold: Asset, paid: Asset
) -> None:
    """OneDex logs each hop and, under another name, the whole path."""
    numbers = [part for token, amount in (sold, paid) for part in (token.encode(), top_uint(amount))]
    timestamp = top_uint(frame.state.block.timestamp)
    frame.emit(router, function, name.encode(), trader, *numbers, timestamp)


def log_liquidity(
    frame: Frame, function: str, trader: bytes, before: Pool, after: Pool, amounts: Sequence[int], lp: int
) -> None:
    """A deposit or withdrawal of `amounts` for `lp` LP units."""
    adding = function.startswith(("add", "safeAdd"))
    tokens = [token.encode() for token in before.tokens]
    if isinstance(before, OneDexPool):
        name = b"AddLiquidityEvent" if adding else b"RemoveLiquidityEvent"
        parts = [*zip(tokens, amounts, strict=True), (before.lp_token.encode(), lp)]
        numbers = [part for token, amount in parts for part in (token, top_uint(amount))]
        frame.emit(before.address, function, name, trader, *numbers, top_uint(frame.state.block.timestamp))
        return
    pieces = [trader]
    for token, amount in zip(tokens, amounts, strict=True):
        pieces += [nested_bytes(token), nested_biguint(amount)]
    pieces += [nested_bytes(before.lp_token.encode()), nested_biguint(lp), nested_biguint(after.lp_supply)]
    pieces += [nested_biguint(reserve) for reserve in after.reserves]
    pieces.append(_when(frame))
    name = b"add_liquidity" if adding else b"remove_liquidity"
    epoch = top_uint(frame.state.block.epoch)
    frame.emit(before.address, function, name, *tokens, trader, epoch, data=b"".join(pieces))


def _when(frame: Frame) -> bytes:
    block = frame.state.block
    return b"".join(nested_uint(value, 8) for value in (block.nonce, block.epoch, block.timestamp))
