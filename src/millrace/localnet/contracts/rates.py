"""Liquid staking and money markets. Their functions are not public: names and view are the local chain's own."""

from typing import Final

from millrace.chain.abi import top_uint
from millrace.chain.token import NATIVE
from millrace.dex.rate import RatePool
from millrace.localnet.contracts import gas
from millrace.localnet.contracts.events import log_swap
from millrace.localnet.contracts.frame import Arguments, ContractError, Frame, State
from millrace.localnet.contracts.pools import PoolContract, pay_out

BASE: Final = 10**18
"""What views tell rates over."""
TRADE: Final = "tradeAtRate"
"""The function that takes the first token for the second."""


class RateContract(PoolContract):
    """One direction of one contract. What comes in goes on to those who stake or borrow it."""

    code_bytes = gas.RATE.code

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address, pool_id, fee_receiver)
        self.endpoints = {TRADE: self._trade}
        self.views = {"getRate": self._rate, "getStock": self._stock}

    def _trade(self, frame: Frame) -> None:
        payment = frame.one_payment()
        frame.args.end()
        pool = self.pool(frame)
        wanted = NATIVE if isinstance(pool, RatePool) and pool.native else pool.tokens[0]
        if payment.token != wanted:
            raise ContractError(f"only {wanted} accepted")
        gas.trade(frame.meter, pool, pool.tokens[0], payment.amount)
        swap = pool.swap(0, 1, payment.amount)
        frame.put_pool(swap.pool)
        frame.pay(self.address, self.fee_receiver, (payment.token, payment.amount))
        sold, paid = (pool.tokens[0], payment.amount), (pool.tokens[1], swap.amount_out)
        log_swap(frame, TRADE, frame.caller, pool, swap, sold, paid)
        pay_out(frame, pool, paid)

    def _rate(self, state: State, args: Arguments) -> list[bytes]:
        pool = state.ledger.pool(self.pool_id)
        assert isinstance(pool, RatePool)
        return [top_uint(BASE * pool.rate[0] // pool.rate[1])]

    def _stock(self, state: State, args: Arguments) -> list[bytes]:
        return [top_uint(state.ledger.pool(self.pool_id).reserves[1])]
