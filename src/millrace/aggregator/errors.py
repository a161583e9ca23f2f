"""What a client reads when a request cannot be served: the documented words, and nothing else."""

from __future__ import annotations

from decimal import Decimal


class ApiError(Exception):
    """An answer with an error body: `{"error": text}` and an HTTP status."""

    def __init__(self, text: str, status: int = 400, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.retry_after = retry_after


class RateLimited(ApiError):
    """More requests than a client may send."""


class Busy(ApiError):
    """Too many questions that take long are waiting, or this client has asked too many."""


class OverShare(Busy):
    """This client has asked too many, or for too much: others are answered meanwhile."""


class SimulationFailed(ApiError):
    """No plan that was found executes."""


def shown(value: str) -> str:
    """A client's own value, quoted for an error text: bounded and printable."""
    text = "".join(c if c.isascii() and c.isprintable() and c != "'" else "?" for c in value[:64])
    return f"'{text}'"


def unknown_token_in(value: str) -> ApiError:
    return ApiError(f"unknown token_in {shown(value)}")


def unknown_token_out(value: str) -> ApiError:
    return ApiError(f"unknown token_out {shown(value)}")


def no_path() -> ApiError:
    return ApiError("routing failed: no path between tokens")


def invalid_amount_in() -> ApiError:
    return ApiError("invalid amount_in: expected unsigned integer amount")


def invalid_amount_out() -> ApiError:
    return ApiError("invalid amount_out: expected unsigned integer amount")


def simulation_failed(reason: str = "") -> SimulationFailed:
    return SimulationFailed(f"simulation failed: {reason}" if reason else "simulation failed")


def price_impact(found: float, most: Decimal) -> ApiError:
    return ApiError(f"price impact too high: {found:.6g} is more than maxPriceImpact {most}")


def too_old(age: float, most_ms: int) -> ApiError:
    return ApiError(
        f"service unavailable: the market is {age * 1000:.0f} ms old, more than maxAgeMs {most_ms}",
        503,
        retry_after=1.0,
    )


def unavailable() -> ApiError:
    return ApiError("service unavailable", 503, retry_after=5.0)


def busy() -> Busy:
    return Busy("service unavailable: too many quotes waiting", 503, retry_after=1.0)


def too_many_of_one() -> OverShare:
    return OverShare("service unavailable: too many quotes waiting", 503, retry_after=1.0)


def share_used_up(wait: float) -> OverShare:
    return OverShare("service unavailable: your share of the time for long quotes is used up", 503, retry_after=wait)


def rate_limited(wait: float) -> RateLimited:
    return RateLimited("rate limit exceeded", 429, retry_after=wait)
