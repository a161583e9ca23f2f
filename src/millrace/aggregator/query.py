"""From a query string to a checked question. Unknown parameters are ignored, as clients expect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from millrace.aggregator import errors
from millrace.aggregator.breakdown import DEX_NAMES
from millrace.aggregator.errors import ApiError, shown
from millrace.aggregator.settings import (
    ANY_REFERRAL,
    MIN_GAS_PRICE,
    MOST_GAS_PRICE,
    MOST_PROFIT_BPS,
    MOST_SPLITS,
    AggregatorSettings,
    decimal,
)
from millrace.chain import address
from millrace.routing.costs import CALLS_PER_TRANSACTION
from millrace.routing.router import Algorithm

ALGORITHMS = ("greedy", "lagrangian", "hybrid")
MAX_POOLS = 100
MAX_LIST = 64
MAX_NAME = 64
MOST_AGE_MS = 3_600_000
PARAMETERS = frozenset(
    {
        *("from", "to", "amountIn", "amountOut", "slippage", "algorithm", "includePaths", "includeLpRoutes"),
        *("maxHops", "maxSplits", "maxPools", "maxBuiltinCalls", "gasPrice", "sender", "referralId", "minProfitBps"),
        *(
            "maxAgeMs",
            "maxPriceImpact",
            "simulate",
            "includeExchanges",
            "excludeExchanges",
            "includePools",
            "excludePools",
        ),
    }
)
"""What a quote knows."""
WITHOUT_TRANSACTION = frozenset({"includePaths", "sender", "slippage"})
"""What changes nothing of ladders and pictures, which have neither transaction nor minimum, nor a choice of paths."""

_AMOUNT = re.compile(r"[0-9]{1,78}")  # 2^256 has 78 digits
_INTEGER = re.compile(r"[0-9]{1,20}")

Default = TypeVar("Default", int, int | None)

Query = Mapping[str, Sequence[str]]


class QuoteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question. Exactly one of the amounts is set; `slippage` is a decimal fraction in [0, 1)."""

    token_in: str
    token_out: str
    amount_in: int | None = None
    amount_out: int | None = None
    slippage: Decimal = Decimal("0.01")
    algorithm: Algorithm = "hybrid"
    include_paths: bool = False
    include_lp_routes: bool = False
    max_hops: int = 10
    max_splits: int | None = None
    """Most paths; without it, as many as are worth what they add to the fee at `gas_price`."""
    max_pools: int = MAX_POOLS
    max_builtin_calls: int = CALLS_PER_TRANSACTION
    gas_price: int = MIN_GAS_PRICE
    sender: str = ""
    referral_id: int = 0
    min_profit_bps: int = 0
    max_age_ms: int | None = None
    max_price_impact: Decimal | None = None
    simulate: bool = False
    ignored: tuple[str, ...] = ()
    """Parameters that were given and have no effect on the answer."""
    only_exchanges: tuple[str, ...] = ()
    without_exchanges: tuple[str, ...] = ()
    only_pools: tuple[str, ...] = ()
    without_pools: tuple[str, ...] = ()


def parse_quote(query: Query, settings: AggregatorSettings) -> QuoteRequest:
    """Check the parameters of a quote. Raises `ApiError` in the documented words."""
    token_in, token_out = parse_pair(query)
    amount_in, amount_out = _amounts(query)
    if len(query) == 3:  # nothing but the pair and the amount: the defaults
        return QuoteRequest(
            token_in=token_in,
            token_out=token_out,
            amount_in=amount_in,
            amount_out=amount_out,
            slippage=parse_slippage(settings.default_slippage),
            include_paths=settings.include_paths,
            min_profit_bps=settings.min_profit_bps,
            max_hops=settings.max_hops,
            max_splits=settings.max_splits,
            gas_price=settings.gas_price,
        )
    return QuoteRequest(
        token_in=token_in,
        token_out=token_out,
        amount_in=amount_in,
        amount_out=amount_out,
        slippage=parse_slippage(settings.default_slippage if (text := parse_text(query, "slippage")) is None else text),
        algorithm=_algorithm(parse_text(query, "algorithm")),
        include_paths=_boolean(query, "includePaths", settings.include_paths),
        include_lp_routes=_boolean(query, "includeLpRoutes", False),
        max_hops=parse_integer(query, "maxHops", settings.max_hops, 1, settings.max_hops),
        max_splits=parse_integer(query, "maxSplits", settings.max_splits, 1, MOST_SPLITS),
        max_pools=parse_integer(query, "maxPools", MAX_POOLS, 1, MAX_POOLS),
        max_builtin_calls=parse_integer(query, "maxBuiltinCalls", CALLS_PER_TRANSACTION, 1, CALLS_PER_TRANSACTION),
        gas_price=parse_integer(query, "gasPrice", settings.gas_price, MIN_GAS_PRICE, MOST_GAS_PRICE),
        sender=parse_sender(parse_text(query, "sender") or ""),
        referral_id=parse_integer(query, "referralId", 0, 0, ANY_REFERRAL),
        min_profit_bps=parse_integer(query, "minProfitBps", settings.min_profit_bps, 0, MOST_PROFIT_BPS),
        max_age_ms=parse_integer(query, "maxAgeMs", 0, 1, MOST_AGE_MS) if "maxAgeMs" in query else None,
        max_price_impact=None
        if (impact := parse_text(query, "maxPriceImpact")) is None
        else parse_price_impact(impact),
        simulate=_simulate(query, settings),
        ignored=_ignored(query, cycle=token_in == token_out),
        only_exchanges=parse_exchanges("includeExchanges", parse_text(query, "includeExchanges")),
        without_exchanges=parse_exchanges("excludeExchanges", parse_text(query, "excludeExchanges")),
        only_pools=parse_names("includePools", parse_text(query, "includePools")),
        without_pools=parse_names("excludePools", parse_text(query, "excludePools")),
    )


def parse_ladder(query: Query, settings: AggregatorSettings) -> tuple[QuoteRequest, list[int]]:
    """The question of a price ladder, with the first of its amounts, and all of them. Raises `ApiError`."""
    amounts = parse_amounts(query, "amounts", settings.max_batch)
    others = {"amounts", "amountIn", "amountOut"}
    rest = {name: values for name, values in query.items() if name not in others}
    question = parse_quote(rest | {"amountIn": [str(amounts[0])]}, settings)
    unused = WITHOUT_TRANSACTION | others - {"amounts"}
    ignored = (*[name for name in query if name in unused], *question.ignored)
    return msgspec.structs.replace(question, ignored=ignored[:MAX_LIST]), amounts


def parse_pair(query: Query) -> tuple[str, str]:
    """The two tokens of a question without amounts. Raises `ApiError` where one is missing or given more than once."""
    for name in ("from", "to"):
        if not query.get(name):
            raise ApiError(f"{name} must be provided")
    return _token(query, "from", errors.unknown_token_in), _token(query, "to", errors.unknown_token_out)


def parse_amounts(query: Query, name: str, most: int) -> list[int]:
    """Comma-separated positive integers. Raises `ApiError` if one is none, or there are more than `most`."""
    texts = (parse_text(query, name) or "").split(",")
    amounts = [amount for text in texts[: most + 1] if (amount := parse_amount(text)) is not None]
    if len(amounts) < min(len(texts), most + 1):
        raise errors.invalid_amount_in()
    if len(texts) > most:
        raise ApiError(f"too many amounts: at most {most}")
    return amounts


@lru_cache(maxsize=1024)  # clients ask with the same few
def parse_slippage(text: str) -> Decimal:
    """A decimal fraction in [0, 1). Never a binary float: `0.01` is one hundredth."""
    value = decimal(text)
    if value is not None and value < 1:
        return value
    raise ApiError("invalid slippage: expected a fraction from 0 to less than 1, such as 0.01")


def parse_amount(text: str) -> int | None:
    """A positive integer in plain ASCII digits, or None."""
    if _AMOUNT.fullmatch(text):
        return int(text) or None
    return None


def parse_sender(text: str) -> str:
    """A bech32 address or nothing."""
    if text:
        try:
            address.decode(text)
        except ValueError:
            raise ApiError("invalid sender: expected a bech32 address") from None
    return text


def parse_text(query: Query, name: str) -> str | None:
    """A parameter's value, or None without one. Raises `ApiError` for several."""
    values = query.get(name)
    if values is None:
        return None
    if len(values) > 1:
        raise ApiError(f"invalid {name}: given more than once")
    return values[0]


def _token(query: Query, name: str, unknown: Callable[[str], ApiError]) -> str:
    values = query.get(name) or [""]
    if len(values) > 1:
        raise unknown(",".join(values))
    return values[0]


def _amounts(query: Query) -> tuple[int | None, int | None]:
    texts_in, texts_out = query.get("amountIn"), query.get("amountOut")
    if texts_in and texts_out:
        raise ApiError("specify either amount_in or amount_out, not both")
    if texts_in:
        amount = parse_amount(texts_in[0]) if len(texts_in) == 1 else None
        if amount is None:
            raise errors.invalid_amount_in()
        return amount, None
    if texts_out:
        amount = parse_amount(texts_out[0]) if len(texts_out) == 1 else None
        if amount is None:
            raise errors.invalid_amount_out()
        return None, amount
    raise ApiError("amount_in or amount_out must be provided")


def _algorithm(text: str | None) -> Algorithm:
    if text is None:
        return "hybrid"
    if text not in ALGORITHMS:
        raise ApiError(f"invalid algorithm {shown(text)}: expected greedy, lagrangian or hybrid")
    return cast(Algorithm, text)


def parse_price_impact(text: str) -> Decimal:
    """A decimal fraction in [0, 1]."""
    value = decimal(text)
    if value is not None and value <= 1:
        return value
    raise ApiError("invalid maxPriceImpact: expected a fraction from 0 to 1, such as 0.05")


def _simulate(query: Query, settings: AggregatorSettings) -> bool:
    """Whether the transaction is to be simulated, which takes a transaction and somebody to ask. Raises `ApiError`."""
    wanted = _boolean(query, "simulate", False)
    if wanted and not settings.gateway:
        raise ApiError("invalid simulate: this service has no gateway to simulate with")
    if wanted and not parse_text(query, "sender"):
        raise ApiError("invalid simulate: expected a sender, too")
    return wanted


def _ignored(query: Query, *, cycle: bool) -> tuple[str, ...]:
    """Names of parameters without effect: those nobody knows, and those of another kind of question."""
    return named([name for name in query if name not in PARAMETERS or (name == "minProfitBps" and not cycle)])


def named(ignored: Sequence[str]) -> tuple[str, ...]:
    """What an answer names of the parameters without effect: bounded, as clients choose the names."""
    return tuple(name[:MAX_NAME] for name in ignored[:MAX_LIST])


def _boolean(query: Query, name: str, default: bool) -> bool:
    text = parse_text(query, name)
    if text is None:
        return default
    if text.lower() in ("false", "0"):
        return False
    if text.lower() in ("true", "1"):
        return True
    raise ApiError(f"invalid {name}: expected true or false")


def parse_integer(query: Query, name: str, default: Default, low: int, high: int) -> int | Default:
    """A whole number in its range. Raises `ApiError`."""
    text = parse_text(query, name)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text):
        raise _out_of_range(name, low, high)
    return within(name, int(text), low, high)


def within(name: str, value: int, low: int, high: int) -> int:
    """A parameter's value, if it is in its range. Raises `ApiError`."""
    if not low <= value <= high:
        raise _out_of_range(name, low, high)
    return value


def _out_of_range(name: str, low: int, high: int) -> ApiError:
    return ApiError(f"invalid {name}: expected an integer from {low} to {high}")


def parse_names(name: str, text: str | None) -> tuple[str, ...]:
    """Comma-separated names, sorted and without doubles, so that equal filters are equal. Raises `ApiError`."""
    if not text:
        return ()
    names = sorted({part.strip() for part in text.split(",") if part.strip()})
    if len(names) > MAX_LIST:
        raise ApiError(f"invalid {name}: at most {MAX_LIST} names")
    return tuple(names)


_EXCHANGES = {name.lower(): exchange for exchange, name in DEX_NAMES.items()}


def parse_exchanges(name: str, text: str | None) -> tuple[str, ...]:
    """Comma-separated names of exchanges, in whatever case, as pools name them. Raises `ApiError`."""
    found = []
    for part in parse_names(name, text):
        exchange = _EXCHANGES.get(part.lower())
        if exchange is None:
            raise ApiError(f"invalid {name}: {shown(part)} is none of {', '.join(DEX_NAMES.values())}")
        found.append(exchange)
    return tuple(sorted(set(found)))
