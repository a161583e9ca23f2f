"""A swap as a transaction: which contract, which function, how much gas, for each exchange."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from millrace.chain import abi, call
from millrace.dex import aggregator_contract as xo
from millrace.dex.aggregator_contract import Action
from millrace.dex.pool import Pool
from millrace.localnet.contracts import gas
from millrace.localnet.contracts.meter import SHALLOW, TRANSFER, Meter

ACTIONS: Final = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_SWAP,
    ("OneDex", "constant_product"): Action.ONEDEX_SWAP,
    ("Jex", "constant_product"): Action.JEX_SWAP,
    ("Jex", "stable"): Action.JEX_STABLE_SWAP,
    ("AshSwap", "stable"): Action.ASH_STABLE_SWAP,
    ("AshSwap", "crypto"): Action.ASH_CRYPTO_SWAP,
}
"""The aggregator contract's action for a swap in a pool of that exchange and kind."""

NO_LIMIT: Final = 2**63
SPARE: Final = 5
"""A gas limit is what the call is expected to take and so much of it (a fifth) on top: pools move before it runs."""

FOUND_BY_TOKENS: Final = (Action.XEXCHANGE_SWAP, Action.ONEDEX_SWAP)


class Order(NamedTuple):
    """Sell `amount` of one token of a pool for at least `minimum` of another."""

    pool: Pool
    token_in: str
    token_out: str
    amount: int
    minimum: int


class Payload(NamedTuple):
    """What a transaction needs: its receiver, its data and gas beyond the move cost."""

    receiver: bytes
    data: bytes
    gas: int


def action_of(pool: Pool) -> Action:
    """The aggregator contract's action for a swap in this pool."""
    return ACTIONS[pool.exchange, pool.kind]


def direct(order: Order, trie_depth: int = SHALLOW) -> Payload:
    """The call of the pool's own contract."""
    function, *args = _function(order)
    meter = _meter(gas.code_of(order.pool).code, args, trie_depth)
    gas.trade(meter, order.pool, order.token_in, order.amount)
    gas.pay_out(meter, order.pool)
    data = call.esdt_transfer(order.token_in, order.amount, function.decode(), *args)
    return Payload(order.pool.address, data, _limit(meter))


def through_aggregator(order: Order, trie_depth: int = SHALLOW) -> Payload:
    """The same swap as a program of the aggregator contract."""
    action = action_of(order.pool)
    addressed = action not in FOUND_BY_TOKENS
    program = xo.Program(
        tokens=(order.token_in, order.token_out),
        addresses=(order.pool.address,) if addressed else (),
        amounts=(),
        instructions=(xo.swap(action, 0, 1, xo.ALL, 0 if addressed else xo.AUTO),),
        min_amount_out=order.minimum,
        token_out=1,
    )
    meter = _meter(gas.AGGREGATOR_CODE, xo.encode_arguments(program), trie_depth)
    gas.begin(meter, 1)
    gas.swap(meter, order.pool, order.token_in, order.amount)
    gas.end(meter, native=False)
    return Payload(xo.CONTRACT, xo.tx_data(program, order.token_in, order.amount), _limit(meter))


def _meter(code_bytes: int, args: Sequence[bytes], trie_depth: int) -> Meter:
    """A meter at the beginning of a call."""
    meter = Meter(NO_LIMIT, trie_depth)
    meter.prepare(code_bytes)
    meter.arguments(args)
    return meter


def _limit(meter: Meter) -> int:
    """The gas limit for a call that was metered, and for the transfer that carries it."""
    return meter.gas_used + meter.gas_used // SPARE + TRANSFER


def _function(order: Order) -> tuple[bytes, ...]:
    """The swap function of each exchange and its arguments."""
    token_out, minimum = order.token_out.encode(), abi.top_uint(order.minimum)
    token_in = order.token_in.encode()
    forms: dict[Action, tuple[bytes, ...]] = {
        Action.XEXCHANGE_SWAP: (b"swapTokensFixedInput", token_out, minimum),
        Action.ONEDEX_SWAP: (b"swapMultiTokensFixedInput", minimum, b"", token_in, token_out),
        Action.JEX_SWAP: (b"swapTokensFixedInput", minimum),
        Action.JEX_STABLE_SWAP: (b"swap", token_out, minimum),
        Action.ASH_STABLE_SWAP: (b"exchange", token_out, minimum),
        Action.ASH_CRYPTO_SWAP: (b"exchange", minimum),
    }
    return forms[action_of(order.pool)]
