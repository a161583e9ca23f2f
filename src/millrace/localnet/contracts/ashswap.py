"""AshSwap: stable pools and two-coin crypto pools.

Functions and arguments are those of the published contract interfaces (`ash-sdk-js`).
"""

from millrace.chain.abi import Reader, top_uint
from millrace.localnet.contracts import gas, views
from millrace.localnet.contracts.frame import Arguments, ContractError, Frame, State
from millrace.localnet.contracts.pools import (
    PoolContract,
    add_any,
    at_least,
    pay_out,
    remove_one,
    remove_shares,
    sell,
)


class AshStable(PoolContract):
    """A stable pool."""

    code_bytes = gas.ASH_STABLE.code

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address, pool_id, fee_receiver)
        self.endpoints = {
            "exchange": self._exchange,
            "addLiquidity": self._add,
            "safeAddLiquidity": self._add,
            "removeLiquidity": self._remove,
            "removeLiquidityOneCoin": self._remove_one_coin,
        }
        self.views = {"estimateAmountOut": self._amount_out, **views.ash_stable(pool_id)}

    def _exchange(self, frame: Frame) -> None:
        """`exchange(token_out, amount_out_min)`."""
        payment = frame.one_payment()
        token_out, minimum = frame.args.token(), frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        swap = sell(frame, pool, payment.token, token_out, payment.amount, self.fee_receiver)
        at_least((swap.amount_out,), (minimum,))
        pay_out(frame, pool, (token_out, swap.amount_out))

    def _add(self, frame: Frame) -> None:
        """`addLiquidity(mint_amount_min, optional receiver)`; the receiver must be the caller."""
        minimum = frame.args.number()
        own_receiver(frame)
        add_any(self, frame, minimum)

    def _remove(self, frame: Frame) -> None:
        """`removeLiquidity(min_1, ..., min_n)`."""
        minima = [frame.args.number() for _ in self.pool(frame).tokens]
        frame.args.end()
        remove_shares(self, frame, minima)

    def _remove_one_coin(self, frame: Frame) -> None:
        """`removeLiquidityOneCoin(token_out, amount_out_min)`."""
        token_out, minimum = frame.args.token(), frame.args.number()
        frame.args.end()
        remove_one(self, frame, token_out, minimum)

    def _amount_out(self, state: State, args: Arguments) -> list[bytes]:
        """`estimateAmountOut(token_in, token_out, amount_in)`."""
        pool = state.ledger.pool(self.pool_id)
        i, j = pool.index(args.token()), pool.index(args.token())
        return [top_uint(pool.amount_out(i, j, args.number()))]


class AshCrypto(PoolContract):
    """A crypto pool. The payment's token implies the direction of a swap."""

    code_bytes = gas.ASH_CRYPTO.code

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address, pool_id, fee_receiver)
        self.endpoints = {
            "exchange": self._exchange,
            "addLiquidity": self._add,
            "removeLiquidity": self._remove,
            "removeLiquidityOneCoin": self._remove_one_coin,
        }
        self.views = {"estimateAmountOut": self._amount_out, **views.ash_crypto(pool_id)}

    def _exchange(self, frame: Frame) -> None:
        """`exchange(min_dy)`."""
        payment = frame.one_payment()
        minimum = frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        token_out = pool.tokens[1 - pool.index(payment.token)]
        swap = sell(frame, pool, payment.token, token_out, payment.amount, self.fee_receiver)
        at_least((swap.amount_out,), (minimum,))
        pay_out(frame, pool, (token_out, swap.amount_out))

    def _add(self, frame: Frame) -> None:
        """`addLiquidity(min_mint, optional receiver)`; the receiver must be the caller."""
        minimum = frame.args.number()
        own_receiver(frame)
        add_any(self, frame, minimum)

    def _remove(self, frame: Frame) -> None:
        """`removeLiquidity(List<BigUint> minima, optional receiver)`; the receiver must be the caller."""
        reader = Reader(frame.args.take())
        minima = reader.items(reader.biguint)
        own_receiver(frame)
        remove_shares(self, frame, minima)

    def _remove_one_coin(self, frame: Frame) -> None:
        """`removeLiquidityOneCoin(i, min_amount, optional receiver)`; the receiver must be the caller."""
        j, minimum = frame.args.number(), frame.args.number()
        own_receiver(frame)
        tokens = self.pool(frame).tokens
        if j >= len(tokens):
            raise ContractError(f"no token {j}")
        remove_one(self, frame, tokens[j], minimum)

    def _amount_out(self, state: State, args: Arguments) -> list[bytes]:
        """`estimateAmountOut(i, j, dx)`."""
        pool = state.ledger.pool(self.pool_id)
        i, j, amount = args.number(), args.number(), args.number()
        return [top_uint(pool.amount_out(i, j, amount))]


def own_receiver(frame: Frame) -> None:
    """An optional receiver argument, which may only name the caller."""
    if frame.args.rest() and frame.args.take() != frame.caller:
        raise ContractError("the receiver must be the caller")
    frame.args.end()
