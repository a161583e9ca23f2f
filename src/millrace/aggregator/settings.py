"""Settings of the aggregator (`MILLRACE_AGGREGATOR__<FIELD>`, table `[aggregator]`)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Meta

from millrace.chain import address
from millrace.chain.amount import TOTAL_BPS
from millrace.routing.costs import (
    CALLS_PER_TRANSACTION,
    GAS_PER_TRANSACTION,
    GAS_PER_TRIE_LEVEL,
    READS_PER_TRANSACTION,
    TRANSFERS_PER_TRANSACTION,
    Cost,
    Table,
)
from millrace.runtime.addresses import check_http
from millrace.runtime.origins import Origins
from millrace.runtime.settings import Seconds, Secret, Share
from millrace.runtime.tracing import TracingSettings

NETWORK_LIMITS = {
    "max_gas": GAS_PER_TRANSACTION,
    "max_builtin_calls": CALLS_PER_TRANSACTION,
    "max_transfers": TRANSFERS_PER_TRANSACTION,
    "max_storage_reads": READS_PER_TRANSACTION,
}
MOST_PROFIT_BPS = 1_000_000  # a hundred times the input
MOST_SPLITS = 50
MIN_GAS_PRICE = 1_000_000_000  # the network's
MOST_GAS_PRICE = 1000 * MIN_GAS_PRICE
MOST_WORKERS = 64  # more processors than that are better used by several machines
MOST_PER_READ = 1_000_000  # a trie of more than twenty levels
MAINNET_CONTRACT = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"

ANY_REFERRAL = (1 << 64) - 1
"""The contract takes a referral's id as 64 bits."""

_FRACTION = re.compile(r"([0-9]{1,3}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE]-?[0-9]{1,2})?")


def decimal(text: str) -> Decimal | None:
    """A decimal of at least 0 in plain ASCII, or None."""
    return Decimal(text) if _FRACTION.fullmatch(text) else None


def parse_referral(text: str) -> int | None:
    """The id of a referral in plain ASCII, or None."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(ANY_REFERRAL))):
        return None
    referral_id = int(text)
    return referral_id if 0 < referral_id <= ANY_REFERRAL else None


def _check_address(name: str, text: str) -> None:
    try:
        address.decode(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


class AggregatorSettings(TracingSettings, frozen=True, kw_only=True):
    """Every setting has a default that works on one machine with the local chain."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8100
    """Port of the REST interface and /health; 0 takes any free port."""
    workers: int = 1
    """Processes that answer, 1 to 64; as many as there are processors to give them. One more process fetches and looks
    after them where there are several."""
    metrics_host: str = "127.0.0.1"
    """Address that the operators' port listens on."""
    metrics_port: int = 8101
    """For operators: /metrics, and /health again; 0 takes any free port. Other aggregators fetch the pool document
    there (`pools_url` with the path `/pools`)."""
    operators_token: Secret = Secret()
    """Token that actions on the operators' port want (`Authorization: Bearer …`), 16 characters at least; empty: there
    are no actions."""
    pools_url: str = "http://127.0.0.1:8400/pools"
    """Where the pool document is fetched."""
    poll_seconds: Seconds = 5.0
    """Time between two fetches."""
    fetch_timeout_seconds: Seconds = 4.0
    """A fetch that takes longer counts as failed."""
    max_document_bytes: int = 64 * 1024 * 1024
    """A larger pool document is refused unread."""
    max_snapshot_age_seconds: Seconds = 60.0
    """Past this age of the last good document quotes answer 503."""
    held_back_share: Share = 0.2
    """A document that lost this share of the pools in use, or a whole exchange, is held back; above 0, at most 1."""
    held_back_fetches: int = 3
    """Fetches in a row that must have lost the same pools until that is believed; 1: at once."""
    contract: str = MAINNET_CONTRACT
    """Address of the aggregator contract, receiver of the transactions."""
    chain_id: str = "1"
    """`chainID` of the transactions in answers; the local chain is `local`."""
    usdc: str = "USDC-c76f1f"
    """The token that prices in USDC are told in."""
    thin_market_egld: Annotated[float, Meta(ge=0, le=1e9)] = 10.0
    """Tokens of which all pools together hold less, worth in EGLD, are listed with a warning."""
    chain_api_url: str = ""
    """Base URL of a chain API (`https://api.multiversx.com`): transactions in answers then have their sender's `nonce`.
    Empty: nobody is asked."""
    chain_api_timeout: Seconds = 1.0
    """Longest wait for it, in seconds; an answer then goes out without."""
    gateway: str = ""
    """Base URL of a gateway (`https://gateway.multiversx.com`) that simulates the transactions of quotes with
    `simulate=true`. Empty: such requests are refused."""
    simulation_timeout: Annotated[float, Meta(gt=0, le=60)] = 2.0
    """Longest wait for it, in seconds; an answer then goes out without a result."""
    gas_price: int = MIN_GAS_PRICE
    """`gasPrice` of transactions in answers, and of the fee that pools must be worth, unless a request names one."""
    max_gas: int = GAS_PER_TRANSACTION
    """Highest `estimatedGasLimit`; a route that needs more is not offered."""
    max_builtin_calls: int = CALLS_PER_TRANSACTION - 2
    """Most built-in calls of a route, 1 to 100: the network's limit, less the most that an estimate was off by."""
    max_transfers: int = TRANSFERS_PER_TRANSACTION - 10
    """Most transfers of a route, 1 to 250: the network's limit, less a margin."""
    max_storage_reads: int = READS_PER_TRANSACTION - 75
    """Most storage reads of a route, 1 to 1500: the network's limit, less a margin."""
    gas_per_read: int = GAS_PER_TRIE_LEVEL
    """Gas in reserve for every storage read, as the live chain's tries are deeper than those the gas was measured on:
    the default is a level more."""
    costs: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """What actions take instead of what `routing/costs.py` says: a row's name to columns and values, such as
    `{"onedex_swap": {"gas": 8000000}}`."""
    requests_per_second: int = 100
    """Requests per IP address and second, of any kind alike; more get 429."""
    redis_url: Secret = Secret()
    """Redis by which several machines count each client together, such as `redis://:password@host:6379/0`; while it
    cannot be asked each machine counts for itself. Empty: it always does."""
    limit_group: str = "millrace"
    """Name of the machines that count together, where one Redis serves several services."""
    client_search_seconds: Seconds = 0.5
    """Processor time, in seconds a second, that one IP address may have for questions that take long. Past it they are
    answered with the best found so far, and past a second's share of debt with 503."""
    max_clients: int = 100_000
    """IP addresses remembered by the rate limit; beyond, the one idle for longest is forgotten."""
    max_connections: int = 10_000
    """Most open connections, and at most the open files the system allows; further ones are closed at once."""
    max_connections_per_client: int = 1_000
    """Most open connections of one IP address; those of this machine and of trusted proxies only count in all."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks (`10.0.0.0/8`) whose `X-Forwarded-For` is believed; the last untrusted hop is the client."""
    allowed_origins: tuple[str, ...] = ("*",)
    """Sites (`https://app.example`) whose pages may read the answers in a browser; `*` is every page, none at all is
    no page."""
    referrals: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """What the contract has on file: referral id to its (static, referral) fee in basis points. The ids that are not
    named here, and that nobody reads from the contract (`referral_sender`), are taken to be inactive: the contract then
    charges nothing."""
    referral_sender: str = ""
    """Address for which the `gateway` simulates calls that tell what the contract charges for a referral; it must hold
    a little EGLD, and sends nothing. Empty: only `referrals` tells."""
    referral_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    """Time after which the fees of referrals are read again."""
    default_slippage: str = "0.01"
    """Slippage where the request names none, as a decimal fraction."""
    include_paths: bool = True
    """Default of `includePaths`: whether a quote shows its paths unless the request says."""
    min_profit_bps: int = 0
    """Default of `minProfitBps`: a smaller profit in arbitrage is no answer."""
    max_hops: int = 10
    """Default and bound of `maxHops`."""
    max_splits: int | None = None
    """Default of `maxSplits`, at most 50; without it there are as many paths as are worth their fee."""
    quote_deadline_seconds: Seconds = 1.0
    """A quote answers with the best found by then."""
    max_waiting_quotes: int = 256
    """Most questions that wait for the threads in which long ones are answered, half of them of one IP address; further
    ones get 503."""
    max_batch: int = 100
    """Most inputs in one batch quote or multi-swap, most amounts in one price ladder."""
    inputs_per_transaction: int = 10
    """Most inputs that share a transaction, 1 to 100. 1 for a contract older than `rs-aggregator` 9f5da21, which takes
    one payment a call and reverts with more; with a `gateway` its simulations decide that as well."""
    max_streams: int = 256
    """Most open quote streams; further ones get 503."""
    max_streams_per_client: int = 8
    """Most open quote streams of one IP address; further ones get 503."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for fees that take more than all of an output, for origins and addresses that are none,
        for costs of unknown rows and columns, for limits above the network's or that leave nothing for pools, and for
        bounds of losses that mean nothing."""
        Origins(self.allowed_origins)
        check_http("pools_url", self.pools_url)
        for name in ("chain_api_url", "gateway"):
            if getattr(self, name):
                check_http(name, getattr(self, name))
        if not 1 <= self.workers <= MOST_WORKERS:
            raise ValueError(f"workers: expected 1 to {MOST_WORKERS}, got {self.workers}")
        for name, (static, referral) in self.referrals.items():
            found = parse_referral(name)
            if found is None or str(found) != name:  # with another spelling it would never be found
                raise ValueError(f"referrals: {name!r} is no id: expected a whole number from 1 to {ANY_REFERRAL}")
            if min(static, referral) < 0 or static + referral > TOTAL_BPS:
                raise ValueError(
                    f"referrals: the fees of {name} must be from 0 and together at most 10000 basis points"
                )
        for name in ("contract", "referral_sender"):
            if getattr(self, name) or name == "contract":
                _check_address(name, getattr(self, name))
        slippage = decimal(self.default_slippage)
        if slippage is None or slippage >= 1:
            raise ValueError(f"default_slippage: expected a fraction from 0 to below 1, got {self.default_slippage!r}")
        for name, most in NETWORK_LIMITS.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}: expected 1 to {most}, got {getattr(self, name)}")
        if not 0 <= self.min_profit_bps <= MOST_PROFIT_BPS:
            raise ValueError(f"min_profit_bps: expected 0 to {MOST_PROFIT_BPS}, got {self.min_profit_bps}")
        if not 1 <= self.inputs_per_transaction <= 100:
            raise ValueError(f"inputs_per_transaction: expected 1 to 100, got {self.inputs_per_transaction}")
        if self.max_splits is not None and not 1 <= self.max_splits <= MOST_SPLITS:
            raise ValueError(f"max_splits: expected 1 to {MOST_SPLITS}, got {self.max_splits}")
        threads = 2 * self.workers  # of each worker, see `answering.py`
        if self.client_search_seconds > threads:
            raise ValueError(f"client_search_seconds: expected at most {threads}, got {self.client_search_seconds:g}")
        if self.held_back_fetches < 1:
            raise ValueError(f"held_back_fetches: expected at least 1, got {self.held_back_fetches}")
        if not 0 <= self.gas_per_read <= MOST_PER_READ:
            raise ValueError(f"gas_per_read: expected 0 to {MOST_PER_READ}, got {self.gas_per_read}")
        table = self.table()
        for egld_out in (False, True):
            if min(table.room(self.most(), table.ends(egld_in=True, egld_out=egld_out, referral=True))) <= 0:
                raise ValueError("the limits of a transaction leave nothing for pools: see max_…, gas_per_read, costs")

    def referral_bps(self, referral_id: int) -> tuple[int, int]:
        """(static, referral) fee of a referral, in basis points of the output; nothing for 0 and unknown ones."""
        return self.referrals.get(str(referral_id), (0, 0)) if referral_id else (0, 0)

    def takes_all(self, referral_id: int) -> bool:
        """Whether a referral leaves nothing of an output, or the unit that two roundings leave."""
        return sum(self.referral_bps(referral_id)) >= TOTAL_BPS

    def table(self) -> Table:
        """What actions take of a transaction. Raises `ValueError`."""
        return Table(self.costs, self.gas_per_read)

    def most(self, calls: int = CALLS_PER_TRANSACTION) -> Cost:
        """What one transaction may take, with no more built-in calls than `calls`."""
        return Cost(
            1 << 60, min(calls, self.max_builtin_calls), self.max_transfers, self.max_storage_reads, self.max_gas
        )
