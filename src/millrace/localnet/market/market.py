"""The generated market: tokens, pools and contracts, the same for the same seed, and its pool document.

`generate` makes it, `install` puts it into the ledger of the shard where all contracts live, `document`
shows the pools as they are now.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from millrace.chain import address
from millrace.chain.network import NetworkProfile
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import CONTRACT
from millrace.dex.constant_product import OneDexPool
from millrace.dex.document import Block, PoolDocument, TokenInfo
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.rate import RATE_POOLS, RatePool
from millrace.dex.stable import JexStablePool
from millrace.dex.vault import Referral
from millrace.localnet.contracts import views
from millrace.localnet.contracts.aggregator import Aggregator, set_referral
from millrace.localnet.contracts.ashswap import AshCrypto, AshStable
from millrace.localnet.contracts.frame import Contract, State
from millrace.localnet.contracts.jex import JexPair, JexStable
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.contracts.onedex import OneDexRouter
from millrace.localnet.contracts.pools import PoolContract
from millrace.localnet.contracts.rates import RateContract
from millrace.localnet.contracts.wrapper import Wrapper
from millrace.localnet.contracts.xexchange import XExchangePair, XExchangeRouter
from millrace.localnet.market import founding, rates
from millrace.localnet.market.dice import CONTEXT, Dice
from millrace.localnet.market.founding import ATTO, Ground, Token
from millrace.localnet.market.listing import MAIN_PAIR_TOKENS, TOKENS

WRAPPED: Final = TOKENS[0].identifier
LEAST_TOKENS: Final = 3
EXCHANGES: Final = ("XExchange", "OneDex", "AshSwap", "Jex")

REFERRALS: Final = (
    Referral(1, static_fee_bps=10, referral_fee_bps=20),
    Referral(2, static_fee_bps=10, referral_fee_bps=100, active=False),
)
"""What the aggregator contract has on file: one active referral, one that was switched off."""

_SYLLABLES: Final = tuple(
    a + b for a in ("B", "D", "F", "K", "L", "M", "N", "R", "S", "T", "X", "Z") for b in ("A", "EX", "I", "O", "UM")
)


class Addresses(msgspec.Struct, frozen=True):
    """Where things are. `fee_receivers` is by exchange; `provider` holds the LP units of the first deposits."""

    aggregator: bytes
    wrapper: bytes
    onedex: bytes
    xexchange_router: bytes
    fee_receivers: dict[str, bytes]
    provider: bytes


class Market(msgspec.Struct, frozen=True):
    """A market at its beginning. `infos` lists all tokens, LP tokens included, as the document does.

    `decimals` are of all of them; `lp_tokens` maps an LP token to the id of the pool that issues it.
    """

    seed: int
    tokens: tuple[Token, ...]
    pools: tuple[Pool, ...]
    addresses: Addresses
    infos: tuple[TokenInfo, ...]
    decimals: dict[str, int]
    lp_tokens: dict[str, str]


def generate(
    seed: int,
    profile: NetworkProfile,
    pools: int = 1000,
    tokens: int = 600,
    mispricing_ppm: int = 1500,
    *,
    rate_pools: bool = False,
) -> Market:
    """A market of so many tokens (LP tokens not counted) and pools, every token connected.

    `mispricing_ppm` is how far a pool's price may be off, in millionths; up to 1500 almost no arbitrage is
    left within the fees. All contracts are in the aggregator contract's shard under any profile. `rate_pools` adds
    liquid staking and a money market. Raises `ValueError` when the numbers do not fit each other.
    """
    if tokens < LEAST_TOKENS:
        raise ValueError(f"a market has at least {LEAST_TOKENS} tokens")
    dice = Dice(f"millrace/market/{seed}/{pools}/{tokens}")
    next_address = _deployer(profile)
    addresses = Addresses(
        aggregator=CONTRACT,
        wrapper=next_address(),
        onedex=next_address(),
        xexchange_router=next_address(),
        fee_receivers={exchange: next_address() for exchange in EXCHANGES},
        provider=next_address(),
    )
    listed = _tokens(tokens, dice)
    placed = founding.sites(listed, pools, dice)
    ground = Ground(listed, dice, mispricing_ppm, addresses.onedex, next_address)
    built: list[Pool] = []
    infos = [_info(token.identifier, token.decimals) for token in listed]
    known = {token.identifier for token in listed}
    pair_id = 0
    for site, depth in zip(placed, founding.depths(placed, dice), strict=True):
        pair_id += site.sort == "OneDex"
        lp_token = _lp_identifier([listed[index].identifier for index in site.tokens], site.sort, dice, known)
        pool = founding.found(ground, site, depth, pair_id, lp_token)
        built.append(pool if site.needed else founding.blemish(pool, dice))
        infos.append(_info(lp_token, pool.lp_decimals, pool.id))
    settled = founding.with_fee_setups(built, addresses.fee_receivers["XExchange"])
    if rate_pools:
        added = rates.rate_pools(listed, next_address)
        listed, settled, infos = (*listed, *added.tokens), (*settled, *added.pools), [*infos, *added.infos]
        built = [*built, *added.pools]
        receivers = {pool.exchange: addresses.provider for pool in added.pools if isinstance(pool, RatePool)}
        addresses = msgspec.structs.replace(addresses, fee_receivers=addresses.fee_receivers | receivers)
    return Market(
        seed,
        listed,
        _restrict_one(settled),
        addresses,
        tuple(infos),
        {info.identifier: info.decimals for info in infos},
        {pool.lp_token: pool.id for pool in built if pool.lp_token},
    )


def _deployer(profile: NetworkProfile) -> Callable[[], bytes]:
    """Addresses of contracts in the order of their deployment."""
    deployer = bytes(range(1, 31)) + CONTRACT[-2:]
    if profile.shard_of(deployer) != profile.shard_of(CONTRACT):
        raise ValueError(f"profile {profile.name} does not keep contracts with like endings in one shard")
    nonce = 0

    def next_address() -> bytes:
        nonlocal nonce
        nonce += 1
        return address.contract_address(deployer, nonce)

    return next_address


def _tokens(count: int, dice: Dice) -> tuple[Token, ...]:
    """The real tokens first, then invented ones."""
    prices: dict[str, int] = {}
    tokens = []
    for listed in TOKENS[:count]:
        if listed.peg in prices:
            price = prices[listed.peg] * listed.ratio // founding.MILLION
        elif listed.price:
            price = int(CONTEXT.multiply(Decimal(listed.price), Decimal(ATTO)))
        else:
            price = _price(dice)
        prices[listed.identifier] = price
        tokens.append(Token(listed.identifier, listed.decimals, price))
    while len(tokens) < count:
        ticker = "".join(dice.pick(_SYLLABLES) for _ in range(dice.between(2, 3)))
        identifier = f"{ticker}-{dice.hexadecimal(6)}"
        if identifier in prices:
            continue
        price = prices[identifier] = _price(dice)
        tokens.append(Token(identifier, _decimals(price, dice), price))
    return tuple(tokens)


def _price(dice: Dice) -> int:
    """A price between a hundred-thousandth of a dollar and some three hundred dollars, evenly in size."""
    exponent = CONTEXT.subtract(CONTEXT.multiply(dice.uniform(), Decimal("7.5")), Decimal(5))
    return int(CONTEXT.multiply(CONTEXT.power(Decimal(10), exponent), Decimal(ATTO)))


def _decimals(price: int, dice: Dice) -> int:
    """Mostly 18; otherwise any number with which the smallest unit is worth a thousandth of a dollar or less."""
    if dice.chance(700):
        return 18
    fine = [decimals for decimals in range(2, 18) if price <= 10 ** (decimals + 15)]
    return dice.pick(fine) if fine else 18


def _lp_identifier(tokens: Sequence[str], sort: str, dice: Dice, known: set[str]) -> str:
    tickers = [token.split("-")[0] for token in tokens]
    ticker = "ALP" if sort.startswith("Ash") else "".join(part[:5] for part in tickers)[:10]
    while True:
        identifier = f"{ticker}-{dice.hexadecimal(6)}"
        if identifier not in known:
            known.add(identifier)
            return identifier


def _info(identifier: str, decimals: int, lp_of: str | None = None) -> TokenInfo:
    ticker = identifier.split("-")[0]
    return TokenInfo(identifier, decimals, ticker.capitalize(), ticker, lp_of is not None, lp_of)


def _restrict_one(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """The last JEX stable pool trades only with callers on its list, if there are several."""
    stable = [index for index, pool in enumerate(pools) if isinstance(pool, JexStablePool)]
    result = list(pools)
    if len(stable) > 1:
        result[stable[-1]] = msgspec.structs.replace(pools[stable[-1]], restricted=True)
    return tuple(result)


def install(market: Market, ledger: Ledger, is_local: Callable[[bytes], bool]) -> State:
    """Put the market into an empty ledger: pools, reserves, LP units, the wrapper's EGLD, and the contracts.

    `is_local` says which accounts live in this ledger's shard.
    """
    ledger.put_pools(market.pools)
    wrapped = 0
    for pool in market.pools:
        for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
            ledger.credit(pool.address, token, reserve)
            wrapped += reserve if token == WRAPPED else 0
        if pool.lp_token:
            ledger.credit(market.addresses.provider, pool.lp_token, pool.lp_supply)
    ledger.credit(market.addresses.wrapper, NATIVE, wrapped)
    state = State(ledger, _contracts(market, ledger), is_local)
    for referral in REFERRALS:
        set_referral(state, market.addresses.aggregator, referral)
    return state


def _contracts(market: Market, ledger: Ledger) -> dict[bytes, Contract]:
    at = market.addresses
    wrapper = Wrapper(at.wrapper, WRAPPED)
    live = DictMarket(market.pools, WRAPPED, at.wrapper)
    live.pools = ledger.pools  # the contract sees the pools as they are at each moment
    esdt = Contract(address.ESDT_SYSTEM_CONTRACT)
    esdt.views = views.token_properties({info.identifier: (info.name, info.decimals) for info in market.infos})
    contracts: list[Contract] = [
        esdt,
        wrapper,
        Aggregator(at.aggregator, live, wrapper, at.fee_receivers),
        OneDexRouter(
            at.onedex,
            [pool for pool in market.pools if isinstance(pool, OneDexPool)],
            _main_tokens(market),
            wrapper,
            at.fee_receivers["OneDex"],
        ),
        XExchangeRouter(at.xexchange_router, tuple(p.id for p in market.pools if p.exchange == "XExchange")),
        *(Contract(receiver) for receiver in dict.fromkeys((*at.fee_receivers.values(), at.provider))),
    ]
    for pool in market.pools:
        code = _CODE.get((pool.exchange, pool.kind))
        if code is not None:
            contracts.append(code(pool.address, pool.id, at.fee_receivers[pool.exchange]))
    return {contract.address: contract for contract in contracts}


_CODE: Final[dict[tuple[str, str], type[PoolContract]]] = {
    ("XExchange", "constant_product"): XExchangePair,
    ("Jex", "constant_product"): JexPair,
    ("Jex", "stable"): JexStable,
    ("AshSwap", "stable"): AshStable,
    ("AshSwap", "crypto"): AshCrypto,
    **dict.fromkeys(RATE_POOLS, RateContract),
}


def _main_tokens(market: Market) -> tuple[str, ...]:
    return tuple(token for token in MAIN_PAIR_TOKENS if token in market.decimals)


def document(market: Market, state: State, block: Block) -> PoolDocument:
    """The pools as they are now. Pools from which everything was withdrawn are left out."""
    return PoolDocument(
        block=block,
        wrapped_native_token=WRAPPED,
        tokens=market.infos,
        pools=tuple([pool for pool in state.ledger.pools.values() if all(pool.reserves)]),
        main_pair_tokens=_main_tokens(market),
        onedex_router=market.addresses.onedex,
        xexchange_router=market.addresses.xexchange_router,
    )
