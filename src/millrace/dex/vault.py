"""The aggregator contract's execution, in exact integers.

The chain runs this on the pools it holds; the quote service runs it on a snapshot to know what the
contract will pay. Steps, texts and rounding follow the public contract; see docs/pools.md.
"""

from collections.abc import Callable, Sequence

import msgspec

from millrace.chain.amount import TOTAL_BPS
from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import Program
from millrace.dex.market import DictMarket, Market
from millrace.dex.operations import perform
from millrace.dex.pool import Pool
from millrace.dex.run import Asset, Run, Step, VaultError

__all__ = ["Asset", "DictMarket", "Market", "Referral", "Step", "VaultError", "VaultResult", "execute"]


class Referral(msgspec.Struct, frozen=True):
    """Fees that a referral id switches on, in basis points of the output."""

    id: int
    static_fee_bps: int
    referral_fee_bps: int
    active: bool = True


class VaultResult(msgspec.Struct, frozen=True):
    """What the contract pays (`amount_out` of `token_out`, fees taken), and the state it leaves.

    `pools` holds every pool that was touched, as it is afterwards, by id. `kept` is what stays with the
    contract, leftovers and fees, by token.
    """

    token_out: str
    amount_out: int
    static_fee: int
    referral_fee: int
    steps: tuple[Step, ...]
    pools: dict[str, Pool]
    kept: dict[str, int]


def execute(
    program: Program,
    payments: Sequence[TokenPayment],
    market: Market,
    referral: Referral | None = None,
    watch: Callable[[Step], None] | None = None,
) -> VaultResult:
    """Run a program on the payments that came with the call; nothing given is changed.

    `referral` is what the contract has on file for `program.referral_id`, if anything. `watch` is
    told each instruction when it is done, and may end the run by raising. Raises `VaultError` where the contract
    reverts, with its text.
    """
    run = Run(program, payments, market)
    steps: list[Step] = []
    try:
        for instruction in program.instructions:
            steps.append(perform(run, instruction))
            if watch is not None:
                watch(steps[-1])
        token = run.token(program.token_out)
    except IndexError:
        raise VaultError("index out of range") from None
    output = run.balance(token)
    static_fee, referral_fee = _fees(program, output, referral)
    paid = output - static_fee - referral_fee
    if paid < program.min_amount_out:
        raise VaultError(f"Slippage limit exceeded: have {paid}, need {program.min_amount_out}")
    del run.balances[token]
    run.keep(Asset(token, static_fee + referral_fee))
    for other, amount in run.balances.items():
        run.keep(Asset(other, amount))
    return VaultResult(token, paid, static_fee, referral_fee, tuple(steps), run.pools, run.kept)


def _fees(program: Program, output: int, referral: Referral | None) -> tuple[int, int]:
    """(static fee, referral fee), each rounded down. Nothing without an active referral."""
    if program.referral_id == 0 or referral is None or not referral.active:
        return 0, 0
    return output * referral.static_fee_bps // TOTAL_BPS, output * referral.referral_fee_bps // TOTAL_BPS
