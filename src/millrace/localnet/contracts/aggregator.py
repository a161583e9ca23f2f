"""The aggregator contract: endpoint `xo`, run by `millrace.dex.vault` on the pools of the chain.

The vault says what happens; here the ledger follows it, so that every unit is in some account at the end:
inputs go to the exchanges' contracts, outputs come back, fees go where each exchange sends them, and what
the program does not pay out stays with this contract.
"""

from collections.abc import Iterable
from typing import Final

from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS
from millrace.dex.aggregator_contract import ENDPOINT, Action, decode_arguments
from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import Market
from millrace.dex.operations import RATED, ZAPPED
from millrace.dex.pool import Pool, Swap
from millrace.dex.run import Forwarded
from millrace.dex.vault import Asset, Referral, Step, VaultResult, execute
from millrace.localnet.contracts import gas
from millrace.localnet.contracts.events import log_liquidity, log_onedex_swap, log_swap
from millrace.localnet.contracts.frame import Contract, Frame, State
from millrace.localnet.contracts.pools import forward
from millrace.localnet.contracts.rates import TRADE
from millrace.localnet.contracts.wrapper import Wrapper

REFERRAL: Final = "referral"

SWAP_FUNCTION: Final[dict[Action, str]] = {
    Action.XEXCHANGE_SWAP: "swapTokensFixedInput",
    Action.ONEDEX_SWAP: "swapMultiTokensFixedInput",
    Action.JEX_SWAP: "swapTokensFixedInput",
    Action.JEX_STABLE_SWAP: "swap",
    Action.ASH_STABLE_SWAP: "exchange",
    Action.ASH_CRYPTO_SWAP: "exchange",
    **{Action(action): TRADE for action in RATED},
}
"""The exchange's function behind each swap, which is its events' identifier."""


class Aggregator(Contract):
    """`market` finds pools as the contract does; `fee_receivers` is by exchange name of the pools."""

    code_bytes = gas.AGGREGATOR_CODE

    def __init__(self, address: bytes, market: Market, wrapper: Wrapper, fee_receivers: dict[str, bytes]) -> None:
        super().__init__(address)
        self.market = market
        self.wrapper = wrapper
        self.fee_receivers = fee_receivers
        self.endpoints = {ENDPOINT: self._xo}

    def _xo(self, frame: Frame) -> None:
        program = decode_arguments(frame.call.args)
        gas.begin(frame.meter, len(frame.payments))
        referral = referral_of(frame.state, self.address, program.referral_id)
        result = execute(program, frame.payments, self.market, referral, lambda step: self._meter(frame, step))
        self._meter_end(frame, result, referred=program.referral_id != 0)
        Settlement(self, frame, result).run()
        paid = result.amount_out
        frame.pay(self.address, frame.caller, (_account_token(result.token_out), paid))
        frame.results.append(paid.to_bytes((paid.bit_length() + 7) // 8, "big"))

    def _meter(self, frame: Frame, step: Step) -> None:
        """Charge for an instruction that was performed."""
        meter = frame.meter
        if step.action == Action.WRAP:
            gas.wrap_egld(meter, self.wrapper.address)
            return
        if step.action == Action.UNWRAP:
            gas.unwrap_egld(meter, self.wrapper.address)
            return
        pool = frame.ledger.pool(step.pool_id)
        if step.action in SWAP_FUNCTION:
            gas.swap(meter, pool, *_in_pool(pool, step.inputs[0]))
        elif step.outputs[0].token == pool.lp_token:
            gas.deposit(meter, pool, len(step.inputs), step.balancing)
        else:
            gas.withdraw(meter, pool, len(step.outputs))

    def _meter_end(self, frame: Frame, result: VaultResult, *, referred: bool) -> None:
        """Charge for the fees, for what is left over, and for paying the output."""
        meter, fees = frame.meter, result.static_fee + result.referral_fee
        if referred:
            booked = self._booked(frame, result.token_out)
            gas.referral_fee(meter, self.address, result.token_out, charged=fees > 0, booked=booked)
        for token, amount in result.kept.items():
            if amount > (fees if token == result.token_out else 0):
                gas.keep(meter, self.address, token, booked=self._booked(frame, token))
        gas.end(meter, native=result.token_out == NATIVE_IN_TRANSFERS)

    def _booked(self, frame: Frame, token: str) -> bool:
        """Whether the contract held the token before this call: then it has been left or charged before."""
        name = _account_token(token)
        paid = sum(payment.amount for payment in frame.payments if payment.token == name)
        return frame.ledger.balance_of(self.address, name) > paid


class Settlement:
    """Moves what a run of the vault moved.

    `due` is what each pool's contract holds beyond its reserves, `issued` the LP units made less those destroyed,
    `running` the pools as the steps so far have left them, `held` what this contract holds for the program.
    """

    def __init__(self, contract: Aggregator, frame: Frame, result: VaultResult) -> None:
        self.contract = contract
        self.frame = frame
        self.result = result
        self.before = {pool_id: frame.ledger.pool(pool_id) for pool_id in result.pools}
        self.due: dict[str, dict[str, int]] = {pool_id: {} for pool_id in result.pools}
        self.running = dict(self.before)
        self.issued = dict.fromkeys(result.pools, 0)
        self.zapped = {step.pool_id for step in result.steps if step.action in ZAPPED}
        held = [*result.kept, result.token_out, *(payment.token for payment in frame.payments)]
        for step in result.steps:
            held += [asset.token for asset in step.inputs]
        self.held = dict.fromkeys(map(_account_token, held), 0)
        for payment in frame.payments:
            self.held[_account_token(payment.token)] += payment.amount

    def run(self) -> None:
        """Every step in order, then what the pools gave or kept beyond it."""
        for step in self.result.steps:
            if step.pool_id:
                self._exchange(step)
            else:
                self._wrap(step)
        self._close_pools()
        self._return_leftovers()
        self._pay_fees()

    def _wrap(self, step: Step) -> None:
        amount = step.inputs[0].amount
        if step.action == Action.WRAP:
            self.contract.wrapper.wrap_for(self.frame, self.contract.address, amount)
        else:
            self.contract.wrapper.unwrap_for(self.frame, self.contract.address, amount)
        self._hold(step.inputs, -1)
        self._hold(step.outputs, 1)

    def _exchange(self, step: Step) -> None:
        frame, pool = self.frame, self.before[step.pool_id]
        inputs = [Asset(_account_token(token), amount) for token, amount in step.inputs]
        frame.pay(self.contract.address, pool.address, *inputs)
        self._hold(inputs, -1)
        self._owe(step.pool_id, inputs, 1)
        for asset in inputs:
            if asset.token == pool.lp_token:
                frame.burn(pool.address, asset.token, asset.amount)
                self.issued[pool.id] -= asset.amount
                self._owe(step.pool_id, (asset,), -1)
        for asset in step.outputs:
            if asset.token == pool.lp_token:
                frame.mint(pool.address, asset.token, asset.amount)
                self.issued[pool.id] += asset.amount
                self._owe(step.pool_id, (asset,), 1)
        self._log(step, pool)
        frame.pay(pool.address, self.contract.address, *step.outputs)
        self._hold(step.outputs, 1)
        self._owe(step.pool_id, step.outputs, -1)
        for forwarded in step.forwarded:
            self._forward(pool, forwarded)

    def _forward(self, pool: Pool, forwarded: Forwarded) -> None:
        """A slice of a pair's special fee leaves it."""
        self._owe(pool.id, (forwarded.slice,), -1)
        if forwarded.bought is not None:
            buyer, (sold, amount), bought = forwarded.sold_in, forwarded.slice, forwarded.bought
            self._owe(buyer, (forwarded.slice,), 1)
            self._owe(buyer, (bought,), -1)
            running = self.running.get(buyer)
            if isinstance(running, XExchangePool):
                self.running[buyer] = running.sell_slice(running.index(sold), running.index(bought.token), amount)[1]
        forward(self.frame, pool.address, forwarded, self.result.pools)

    def _log(self, step: Step, pool: Pool) -> None:
        function = SWAP_FUNCTION.get(step.action)
        if function is None:
            self._log_liquidity(step, pool)
            return
        me, sold, (paid,) = self.contract.address, _in_pool(pool, step.inputs[0]), step.outputs
        before = self.running.get(pool.id)
        if before is None:  # after a deposit or withdrawal only the state at the end is known
            after = self.result.pools[pool.id]
            fee = step.fees[0]
            before, swap = after, Swap(paid.amount, fee.token, fee.amount, after)
        else:
            swap = before.swap(before.index(sold.token), before.index(paid.token), sold.amount)
            self.running[pool.id] = swap.pool
        log_swap(self.frame, function, me, before, swap, sold, paid)
        if step.action == Action.ONEDEX_SWAP:
            log_onedex_swap(self.frame, function, "SwapMultiTokensFixedInputEvent", pool.address, me, sold, paid)

    def _log_liquidity(self, step: Step, pool: Pool) -> None:
        self.running.pop(pool.id, None)
        adding = step.outputs[0].token == pool.lp_token
        lp, others = (step.outputs[0], step.inputs) if adding else (step.inputs[0], step.outputs)
        moved = {asset.token: asset.amount for asset in others}
        amounts = [moved.get(token, 0) for token in pool.tokens]
        function = "addLiquidity" if adding else "removeLiquidity"
        after = self.result.pools[pool.id]
        log_liquidity(self.frame, function, self.contract.address, pool, after, amounts, lp.amount)

    def _close_pools(self) -> None:
        """Store the pools as the vault left them; what their contracts hold beyond that is still due."""
        for pool_id, after in self.result.pools.items():
            before = self.before[pool_id]
            for token, old, new in zip(before.tokens, before.reserves, after.reserves, strict=True):
                self._owe(pool_id, (Asset(token, old - new),), 1)
            # A pool's first deposit locks some LP units with the pool for good.
            locked = after.lp_supply - before.lp_supply - self.issued[pool_id]
            self.frame.mint(after.address, after.lp_token, locked)
            self.frame.put_pool(after)

    def _return_leftovers(self) -> None:
        """A zap gives back what it could not use: whatever this contract should hold and does not yet."""
        expected = {_account_token(token): amount for token, amount in self.result.kept.items()}
        token_out = _account_token(self.result.token_out)
        expected[token_out] = expected.get(token_out, 0) + self.result.amount_out
        for token, held in self.held.items():
            missing = expected.get(token, 0) - held
            for pool_id in sorted(self.zapped):
                due = self.due[pool_id].get(token, 0)
                amount = min(missing, due)
                if amount > 0:
                    address = self.before[pool_id].address
                    self.frame.pay(address, self.contract.address, (token, amount))
                    self._owe(pool_id, (Asset(token, amount),), -1)
                    missing -= amount

    def _pay_fees(self) -> None:
        for pool_id, due in self.due.items():
            pool = self.before[pool_id]
            receiver = self.contract.fee_receivers[pool.exchange]
            self.frame.pay(pool.address, receiver, *due.items())

    def _hold(self, assets: Iterable[Asset], sign: int) -> None:
        for token, amount in assets:
            name = _account_token(token)
            self.held[name] = self.held.get(name, 0) + sign * amount

    def _owe(self, pool_id: str, assets: Iterable[Asset], sign: int) -> None:
        due = self.due[pool_id]
        for token, amount in assets:
            due[token] = due.get(token, 0) + sign * amount


def _in_pool(pool: Pool, asset: Asset) -> Asset:
    """What is sold, by the pool's name for it: the wrapped token where the contract takes EGLD."""
    return Asset(pool.tokens[0], asset.amount) if asset.token == NATIVE_IN_TRANSFERS else asset


def referral_of(state: State, contract: bytes, referral_id: int) -> Referral | None:
    """What the contract has on file for a referral id."""
    found = state.ledger.load(contract, f"{REFERRAL}/{referral_id}")
    return found if isinstance(found, Referral) else None


def set_referral(state: State, contract: bytes, referral: Referral) -> None:
    """Put a referral on file."""
    state.ledger.store(contract, f"{REFERRAL}/{referral.id}", referral)


def _account_token(token: str) -> str:
    """The vault says `EGLD-000000` where accounts say `EGLD`."""
    return NATIVE if token == NATIVE_IN_TRANSFERS else token
