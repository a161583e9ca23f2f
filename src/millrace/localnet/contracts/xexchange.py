"""xExchange pair: swaps with a fixed input or output, deposits and withdrawals in the pool's ratio.

Functions, argument order and which payments they take are those of `mx-exchange-sc`'s pair contract.
"""

from millrace.chain.abi import top_uint
from millrace.localnet.contracts import gas, views
from millrace.localnet.contracts.frame import Arguments, Contract, ContractError, Frame, State
from millrace.localnet.contracts.pools import (
    PoolContract,
    at_least,
    buy,
    deposit,
    fixed_output_input,
    pay_out,
    payments_in_order,
    remove_shares,
    sell,
)


class XExchangeRouter(Contract):
    """Knows the pairs; they are not opened here."""

    def __init__(self, address: bytes, pool_ids: tuple[str, ...]) -> None:
        super().__init__(address)
        self.views = views.xexchange_router(pool_ids)


class XExchangePair(PoolContract):
    """One pair contract."""

    code_bytes = gas.XEXCHANGE.code

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address, pool_id, fee_receiver)
        self.endpoints = {
            "swapTokensFixedInput": self._fixed_input,
            "swapTokensFixedOutput": self._fixed_output,
            "addLiquidity": self._add,
            "removeLiquidity": self._remove,
        }
        self.views = {
            "getReservesAndTotalSupply": self._reserves,
            "getAmountOut": self._amount_out,
            "getAmountIn": self._amount_in,
            **views.xexchange_pair(pool_id),
        }

    def _fixed_input(self, frame: Frame) -> None:
        """`swapTokensFixedInput(token_out, amount_out_min)`."""
        payment = frame.one_payment()
        token_out, minimum = frame.args.token(), frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        swap = sell(frame, pool, payment.token, token_out, payment.amount, self.fee_receiver)
        at_least((swap.amount_out,), (minimum,))
        pay_out(frame, pool, (token_out, swap.amount_out))

    def _fixed_output(self, frame: Frame) -> None:
        """`swapTokensFixedOutput(token_out, amount_out)`; the payment is the most that may be taken."""
        payment = frame.one_payment()
        token_out, wanted = frame.args.token(), frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        taken = buy(frame, pool, payment.token, token_out, wanted, self.fee_receiver)
        if taken > payment.amount:
            raise ContractError(f"Slippage exceeded: have {payment.amount}, need {taken}")
        pay_out(frame, pool, (token_out, wanted), (payment.token, payment.amount - taken))

    def _add(self, frame: Frame) -> None:
        """`addLiquidity(first_min, second_min)` with both tokens in the pool's order."""
        minima = frame.args.number(), frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        amounts = payments_in_order(frame, pool.tokens)
        mint = pool.mint(amounts)
        at_least(mint.used, minima, "Insufficient token computed amount")
        deposit(frame, pool, mint, dict(zip(pool.tokens, amounts, strict=True)), self.fee_receiver)

    def _remove(self, frame: Frame) -> None:
        """`removeLiquidity(first_min, second_min)`."""
        minima = frame.args.number(), frame.args.number()
        frame.args.end()
        remove_shares(self, frame, minima)

    def _reserves(self, state: State, args: Arguments) -> list[bytes]:
        pool = state.ledger.pool(self.pool_id)
        return [top_uint(value) for value in (*pool.reserves, pool.lp_supply)]

    def _amount_out(self, state: State, args: Arguments) -> list[bytes]:
        """`getAmountOut(token_in, amount_in)`."""
        pool = state.ledger.pool(self.pool_id)
        i = pool.index(args.token())
        return [top_uint(pool.amount_out(i, 1 - i, args.number()))]

    def _amount_in(self, state: State, args: Arguments) -> list[bytes]:
        """`getAmountIn(token_wanted, amount_wanted)`."""
        pool = state.ledger.pool(self.pool_id)
        j = pool.index(args.token())
        wanted = args.number()
        return [top_uint(fixed_output_input(pool, pool.tokens[1 - j], pool.tokens[j], wanted))]
