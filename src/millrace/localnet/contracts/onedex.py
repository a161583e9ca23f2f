"""OneDex: one contract with all pairs. Swaps follow a path of tokens through its pairs.

Functions and arguments are those of the deployed contract's ABI.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

from millrace.chain.abi import top_uint
from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE
from millrace.dex.constant_product import OneDexPool
from millrace.localnet.contracts import gas, storage, views
from millrace.localnet.contracts.events import log_onedex_swap
from millrace.localnet.contracts.frame import Arguments, Contract, ContractError, Frame, State
from millrace.localnet.contracts.pools import (
    at_least,
    buy,
    deposit,
    lp_payment,
    pay_out,
    payments_in_order,
    sell,
    withdraw,
)
from millrace.localnet.contracts.wrapper import Wrapper

MAX_HOPS = 16
TOO_LITTLE = "Insufficient output token computed amount"


class OneDexRouter(Contract):
    """`pools` are the pairs as they began; what never changes about them is how they are found."""

    code_bytes = gas.ONEDEX.code

    def __init__(
        self,
        address: bytes,
        pools: Sequence[OneDexPool],
        main_tokens: tuple[str, ...],
        wrapper: Wrapper,
        fee_receiver: bytes,
    ) -> None:
        super().__init__(address)
        self.pairs = {frozenset(pool.tokens): pool.id for pool in pools}
        self.lp_tokens = {pool.lp_token: pool.id for pool in pools}
        self.wrapper = wrapper
        self.fee_receiver = fee_receiver
        self.endpoints = {
            "swapMultiTokensFixedInput": self._fixed_input,
            "swapMultiTokensFixedOutput": self._fixed_output,
            "addLiquidity": self._add,
            "removeLiquidity": self._remove,
        }
        self.views = {
            "getAmountOut": self._amount_out,
            "getAmountIn": self._amount_in,
            "getPairReserve": self._reserves,
            **views.onedex({pool.pair_id: pool.id for pool in pools}, main_tokens),
        }

    def stored(self, state: State) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for pool_id in self.pairs.values():
            found |= storage.of_pool(state.ledger.pool(pool_id))
        return found

    def _fixed_input(self, frame: Frame) -> None:
        """`swapMultiTokensFixedInput(amount_out_min, unwrap_required, path...)`."""
        minimum, unwrap = frame.args.number(), frame.args.boolean()
        paid = self._payment(frame)
        path = self._path(frame, paid.token, unwrap)
        amount = paid.amount
        for token_in, token_out in pairwise(path):
            pool = self._pair(frame.state, token_in, token_out)
            amount = sell(frame, pool, token_in, token_out, amount, self.fee_receiver).amount_out
        at_least((amount,), (minimum,), TOO_LITTLE)
        self._log(frame, "Input", (path[0], paid.amount), (path[-1], amount))
        pay_out(frame, pool, self._unwrapped(frame, path[-1], amount, unwrap))

    def _fixed_output(self, frame: Frame) -> None:
        """`swapMultiTokensFixedOutput(amount_out_wanted, unwrap_required, path...)`; what is too much comes back."""
        wanted, unwrap = frame.args.number(), frame.args.boolean()
        paid = self._payment(frame)
        path = self._path(frame, paid.token, unwrap)
        amount = wanted
        for token_in, token_out in reversed(list(pairwise(path))):
            pool = self._pair(frame.state, token_in, token_out)
            amount = buy(frame, pool, token_in, token_out, amount, self.fee_receiver)
        if amount > paid.amount:
            raise ContractError(f"Insufficient input token computed amount: have {paid.amount}, need {amount}")
        self._log(frame, "Output", (path[0], amount), (path[-1], wanted))
        output = self._unwrapped(frame, path[-1], wanted, unwrap)
        pay_out(frame, pool, output, (path[0], paid.amount - amount))

    def _payment(self, frame: Frame) -> TokenPayment:
        """The only payment; EGLD is wrapped first."""
        payment = frame.one_payment()
        if payment.token != NATIVE:
            return payment
        gas.wrap(frame.meter, self.wrapper.address, nested=True)
        self.wrapper.wrap_for(frame, self.address, payment.amount)
        return payment._replace(token=self.wrapper.token)

    def _unwrapped(self, frame: Frame, token: str, amount: int, unwrap: bool) -> tuple[str, int]:
        """The output, as EGLD if that was asked for and the token is wrapped EGLD."""
        if not unwrap or token != self.wrapper.token:
            return token, amount
        gas.unwrap(frame.meter, self.wrapper.address, nested=True)
        self.wrapper.unwrap_for(frame, self.address, amount)
        return NATIVE, amount

    def _path(self, frame: Frame, first: str, unwrap: bool) -> list[str]:
        path = [frame.args.token() for _ in range(frame.args.rest())]
        if not 2 <= len(path) <= MAX_HOPS + 1:
            raise ContractError(f"Length of path must be 2 to {MAX_HOPS + 1}, not {len(path)}")
        if path[0] != first:
            raise ContractError("payment token and first path token does not match")
        if unwrap and path[-1] != self.wrapper.token:
            raise ContractError("Only unwrap available for wegld")
        return path

    def _log(self, frame: Frame, side: str, sold: tuple[str, int], paid: tuple[str, int]) -> None:
        name = f"SwapMultiTokensFixed{side}Event"
        log_onedex_swap(frame, frame.call.function, name, self.address, frame.caller, sold, paid)

    def _pair(self, state: State, token: str, other: str) -> OneDexPool:
        pool_id = self.pairs.get(frozenset((token, other)))
        if pool_id is None:
            raise ContractError(f"Pair does not exist: {token} {other}")
        return cast(OneDexPool, state.ledger.pool(pool_id))

    def _add(self, frame: Frame) -> None:
        """`addLiquidity(first_min, second_min)` with both tokens in the pair's order; minima must be positive."""
        minima = frame.args.number(), frame.args.number()
        frame.args.end()
        if not all(minima):
            raise ContractError("first and second token min amount must be greater than 0")
        if len(frame.payments) != 2:
            raise ContractError(f"incorrect number of transfers: expected 2, got {len(frame.payments)}")
        pool = self._pair(frame.state, frame.payments[0].token, frame.payments[1].token)
        amounts = payments_in_order(frame, pool.tokens)
        mint = pool.mint(amounts)
        at_least(mint.used, minima, "insufficient token amount")
        deposit(frame, pool, mint, dict(zip(pool.tokens, amounts, strict=True)), self.fee_receiver)

    def _remove(self, frame: Frame) -> None:
        """`removeLiquidity(first_min, second_min, unwrap_required)`."""
        minima = frame.args.number(), frame.args.number()
        unwrap = frame.args.boolean()
        frame.args.end()
        pool_id = self.lp_tokens.get(frame.one_payment().token)
        if pool_id is None:
            raise ContractError("Invalid LP token")
        pool = frame.ledger.pool(pool_id)
        lp = lp_payment(frame, pool)
        burn = pool.burn(lp)
        at_least(burn.amounts, minima, "insufficient token amount")
        withdraw(frame, pool, burn, lp, self.fee_receiver)
        paid = zip(pool.tokens, burn.amounts, strict=True)
        pay_out(frame, pool, *[self._unwrapped(frame, token, amount, unwrap) for token, amount in paid])

    def _amount_out(self, state: State, args: Arguments) -> list[bytes]:
        """`getAmountOut(token_in, token_out, amount_in)`, with the rounding of the contract's view."""
        token_in, token_out = args.token(), args.token()
        pool = self._pair(state, token_in, token_out)
        return [top_uint(pool.view_amount_out(pool.index(token_in), pool.index(token_out), args.number()))]

    def _amount_in(self, state: State, args: Arguments) -> list[bytes]:
        """`getAmountIn(token_in, token_out, amount_out)`, with the rounding of the contract's view."""
        token_in, token_out = args.token(), args.token()
        pool = self._pair(state, token_in, token_out)
        return [top_uint(pool.view_amount_in(pool.index(token_in), pool.index(token_out), args.number()))]

    def _reserves(self, state: State, args: Arguments) -> list[bytes]:
        """`getPairReserve(first, second)`: both reserves and the LP supply."""
        pool = self._pair(state, args.token(), args.token())
        return [top_uint(value) for value in (*pool.reserves, pool.lp_supply)]
