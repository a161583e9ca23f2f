"""JEX: constant product pairs, where the output token is implied, and stable pools.

Functions and arguments are those of `jex-sc-dex-pair` and `jex-sc-stablepool`.
"""

from millrace.chain.abi import top_uint
from millrace.dex.constant_product import JexPool
from millrace.localnet.contracts import gas, views
from millrace.localnet.contracts.frame import Arguments, ContractError, Frame, State
from millrace.localnet.contracts.pools import (
    PoolContract,
    add_any,
    at_least,
    buy,
    deposit,
    fixed_output_input,
    pay_out,
    payments_in_order,
    remove_one,
    remove_shares,
    sell,
)

SLIPPAGE = "Max slippage exceeded"
MIN_OUTPUT_STABLE = 2
"""Stable pools refuse a smaller minimum."""


class JexPair(PoolContract):
    """A constant product pair."""

    code_bytes = gas.JEX.code

    slippage = SLIPPAGE

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address, pool_id, fee_receiver)
        self.endpoints = {
            "swapTokensFixedInput": self._fixed_input,
            "swapTokensFixedOutput": self._fixed_output,
            "addLiquidity": self._add,
            "addLiquiditySingle": self._add_single,
            "removeLiquidity": self._remove,
            "removeLiquiditySingle": self._remove_single,
        }
        self.views = {
            "estimateAmountOut": self._amount_out,
            "estimateAmountIn": self._amount_in,
            **views.jex(pool_id, views.jex_status),
        }

    def _fixed_input(self, frame: Frame) -> None:
        """`swapTokensFixedInput(min_amount_out)`."""
        payment = frame.one_payment()
        minimum = frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        token_out = pool.tokens[1 - pool.index(payment.token)]
        swap = sell(frame, pool, payment.token, token_out, payment.amount, self.fee_receiver)
        at_least((swap.amount_out,), (minimum,), SLIPPAGE)
        pay_out(frame, pool, (token_out, swap.amount_out))

    def _fixed_output(self, frame: Frame) -> None:
        """`swapTokensFixedOutput(exact_amount_out)`; what is paid too much comes back."""
        payment = frame.one_payment()
        wanted = frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        token_out = pool.tokens[1 - pool.index(payment.token)]
        taken = buy(frame, pool, payment.token, token_out, wanted, self.fee_receiver)
        if taken > payment.amount:
            raise ContractError(f"{SLIPPAGE}: have {payment.amount}, need {taken}")
        pay_out(frame, pool, (token_out, wanted), (payment.token, payment.amount - taken))

    def _add(self, frame: Frame) -> None:
        """`addLiquidity(min_second_amount)`: all of the first token and what matches it of the second."""
        minimum = frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        amounts = payments_in_order(frame, pool.tokens)
        mint = pool.mint(amounts)
        if mint.used[0] < amounts[0]:
            raise ContractError("Not enough second tokens")
        at_least(mint.used[1:], (minimum,), SLIPPAGE)
        deposit(frame, pool, mint, dict(zip(pool.tokens, amounts, strict=True)), self.fee_receiver)

    def _add_single(self, frame: Frame) -> None:
        """`addLiquiditySingle(min_first, min_second)`; the minima are for what the new LP units stand for."""
        payment = frame.one_payment()
        minima = frame.args.number(), frame.args.number()
        frame.args.end()
        pool = self.pool(frame)
        mint = pool.mint_single(pool.index(payment.token), payment.amount)
        at_least(mint.pool.shares(mint.lp), minima, SLIPPAGE)
        deposit(frame, pool, mint, {payment.token: payment.amount}, self.fee_receiver)

    def _remove(self, frame: Frame) -> None:
        """`removeLiquidity(first_min, second_min)`."""
        minima = frame.args.number(), frame.args.number()
        frame.args.end()
        remove_shares(self, frame, minima)

    def _remove_single(self, frame: Frame) -> None:
        """`removeLiquiditySingle(token_out, min_first, min_second)`; only the minimum of `token_out` counts."""
        token_out = frame.args.token()
        minima = frame.args.number(), frame.args.number()
        frame.args.end()
        remove_one(self, frame, token_out, minima[self.pool(frame).index(token_out)])

    def _amount_out(self, state: State, args: Arguments) -> list[bytes]:
        """`estimateAmountOut(token_in, amount)`: net output, gross output, LP fee, platform fee."""
        pool = state.ledger.pool(self.pool_id)
        assert isinstance(pool, JexPool)
        i = pool.index(args.token())
        gross, lp_fee, platform_fee = pool.fees(i, 1 - i, args.number())
        return [top_uint(value) for value in (gross - lp_fee - platform_fee, gross, lp_fee, platform_fee)]

    def _amount_in(self, state: State, args: Arguments) -> list[bytes]:
        """`estimateAmountIn(token_out, amount)`."""
        pool = state.ledger.pool(self.pool_id)
        j = pool.index(args.token())
        wanted = args.number()
        return [top_uint(fixed_output_input(pool, pool.tokens[1 - j], pool.tokens[j], wanted))]


class JexStable(PoolContract):
    """A stable pool. Restricted pools refuse swaps by themselves."""

    code_bytes = gas.JEX_STABLE.code

    slippage = SLIPPAGE

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address, pool_id, fee_receiver)
        self.endpoints = {
            "swap": self._swap,
            "addLiquidity": self._add,
            "removeLiquidity": self._remove,
            "removeLiquidityOneToken": self._remove_one_token,
        }
        self.views = {
            "estimateAmountOut": self._amount_out,
            **views.jex(pool_id, views.jex_stable_status),
        }

    def _swap(self, frame: Frame) -> None:
        """`swap(token_out, min_amount_out)`."""
        payment = frame.one_payment()
        token_out, minimum = frame.args.token(), frame.args.number()
        frame.args.end()
        if minimum < MIN_OUTPUT_STABLE:
            raise ContractError("Min amount out must be greater than 1")
        pool = self.pool(frame)
        swap = sell(frame, pool, payment.token, token_out, payment.amount, self.fee_receiver)
        at_least((swap.amount_out,), (minimum,), SLIPPAGE)
        pay_out(frame, pool, (token_out, swap.amount_out))

    def _add(self, frame: Frame) -> None:
        """`addLiquidity(min_shares)` with any of the pool's tokens."""
        minimum = frame.args.number()
        frame.args.end()
        add_any(self, frame, minimum)

    def _remove(self, frame: Frame) -> None:
        """`removeLiquidity(min_1, ..., min_n)`."""
        minima = [frame.args.number() for _ in self.pool(frame).tokens]
        frame.args.end()
        remove_shares(self, frame, minima)

    def _remove_one_token(self, frame: Frame) -> None:
        """`removeLiquidityOneToken(token_out, min_amount)`."""
        token_out, minimum = frame.args.token(), frame.args.number()
        frame.args.end()
        remove_one(self, frame, token_out, minimum)

    def _amount_out(self, state: State, args: Arguments) -> list[bytes]:
        """`estimateAmountOut(token_in, amount, token_out)`."""
        pool = state.ledger.pool(self.pool_id)
        i, amount, j = pool.index(args.token()), args.number(), pool.index(args.token())
        return [top_uint(pool.amount_out(i, j, amount))]
