"""A market of the local chain as an aggregator sees it, and the transactions of answers run on its contracts."""

from __future__ import annotations

import base64
import random
from functools import cache
from typing import NamedTuple

import msgspec

from millrace.aggregator.snapshot import Snapshot, build
from millrace.chain import call
from millrace.chain.address import contract_address, encode
from millrace.chain.fees import move_gas
from millrace.chain.network import profile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.dex import document
from millrace.dex.aggregator_contract import CONTRACT
from millrace.dex.constant_product import JexPool
from millrace.dex.document import TokenInfo
from millrace.dex.pool import PoolState
from millrace.localnet.contracts import builtin
from millrace.localnet.contracts.execution import CallResult, ContractCall, State, execute_call
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market import market

NETWORK = profile("documented", chain_id="local")
TRADER = b"\x07" * 32


class Scene(NamedTuple):
    market: market.Market
    state: State
    document: bytes
    snapshot: Snapshot
    """Of the document."""


def with_traded_lp_tokens(made: market.Market, count: int) -> market.Market:
    """The market and further JEX pools, in which LP tokens of its pools are traded at about what they stand for."""
    dice = random.Random("LP pools")
    prices = {token.identifier: token.price / 10**token.decimals for token in made.tokens}
    deployer = bytes(range(1, 31)) + CONTRACT[-2:]
    kinds = [[pool for pool in made.pools if pool.kind == kind] for kind in ("constant_product", "stable", "crypto")]
    issuers = [pool for pools in kinds for pool in dice.sample(pools, min(count, len(pools)))]
    added = []
    for number, issuer in enumerate(issuers):
        other = next(token.identifier for token in made.tokens if token.identifier not in issuer.tokens)
        worth = sum(reserve * prices[token] for token, reserve in zip(issuer.tokens, issuer.reserves, strict=True))
        reserves = (issuer.lp_supply // 4, int(worth / 4 / prices[other] * dice.uniform(0.98, 1.02)))
        if min(reserves) < 10**6 or issuer.state != PoolState.ACTIVE:
            continue
        pubkey = contract_address(deployer, 1_000_000 + number)
        added.append(
            JexPool(
                id=f"j:{encode(pubkey)}",
                address=pubkey,
                tokens=(issuer.lp_token, other),
                reserves=reserves,
                lp_token=f"LPLP-{number:06x}",
                lp_supply=10**18,
                lp_fee=20,
                platform_fee=10,
            )
        )
    infos = [TokenInfo(pool.lp_token, 18, "Lplp", "LPLP", True, pool.id) for pool in added]
    return msgspec.structs.replace(
        made,
        pools=(*made.pools, *added),
        infos=(*made.infos, *infos),
        decimals=made.decimals | {info.identifier: 18 for info in infos},
        lp_tokens=made.lp_tokens | {pool.lp_token: pool.id for pool in added},
    )


@cache
def scene() -> Scene:
    """A market with arbitrage left in it, and what the quote service sees of it."""
    made = market.generate(11, NETWORK, pools=400, tokens=120, mispricing_ppm=10_000)
    made = with_traded_lp_tokens(made, 5)
    state = market.install(made, Ledger(), lambda pubkey: True)
    shown = document.encode(market.document(made, state, document.Block(1, 1, 1)))
    return Scene(made, state, shown, build(shown, 0.0))


def amount_of(token: str, dice: random.Random) -> int:
    """An amount between a millionth and a tenth of what the deepest pool holds."""
    made, state, *_ = scene()
    if token in made.lp_tokens:
        deepest = state.ledger.pool(made.lp_tokens[token]).lp_supply
    else:
        name = market.WRAPPED if token == NATIVE else token
        deepest = max(pool.reserves[pool.index(name)] for pool in made.pools if name in pool.tokens)
    return max(deepest // 10 ** dice.randrange(1, 7), 1)


def run(
    tx_data: str, gas_limit: int, inputs: dict[str, int], token_out: str, *, batch: bool = False
) -> tuple[CallResult, int]:
    """The result of a transaction that sells `inputs`, and what the trader gained of `token_out`.

    That of a `batch` goes to the sender itself, who pays for it with a multi-transfer.
    """
    made, state, *_ = scene()
    ledger, value = state.ledger, 0 if batch else inputs.get(NATIVE, 0)
    tx = Transaction(
        nonce=0,
        value=value,
        receiver=TRADER if batch else made.addresses.aggregator,
        sender=TRADER,
        gas_price=10**9,
        gas_limit=gas_limit,
        chain_id="local",
        data=base64.b64decode(tx_data),
    )
    for token, amount in inputs.items():
        ledger.credit(TRADER, token, amount)
    paid = call.payments_of(tx)
    builtin.send(ledger, TRADER, paid.payments)
    before = ledger.balance_of(TRADER, token_out)
    tokens = [payment for payment in paid.payments if payment.token != NATIVE]
    gas = tx.gas_limit - move_gas(tx, NETWORK.gas) - builtin.gas(tokens)
    called = ContractCall(TRADER, paid.receiver, value, paid.payments, paid.function, paid.args, gas)
    result = execute_call(state, called)
    return result, ledger.balance_of(TRADER, token_out) - before
