"""What can go wrong, as exceptions: refused, not reached, and not known."""

from __future__ import annotations


class ClientError(Exception):
    """Whatever this package raises by itself."""


class Refused(ClientError):
    """A service answered that it will not. Also handed out as a value where one of many is refused."""

    def __init__(
        self,
        reason: str,
        *,
        code: str = "",
        detail: str = "",
        retry_after: float | None = None,
        status: int | None = None,
        index: int | None = None,
    ) -> None:
        where = "" if index is None else f"transaction {index}: "
        later = "" if retry_after is None else f"; may work in {retry_after:g} s"
        super().__init__(where + reason + (f": {detail}" if detail else "") + later)
        self.reason = reason
        """The service's words."""
        self.code = code
        """The same, stable, in snake case; empty where the service names none."""
        self.detail = detail
        """What to do next, if the service says so."""
        self.retry_after = retry_after
        """Seconds after which the same may work; None: the service does not say."""
        self.status = status
        """The HTTP status; None of what came over a WebSocket."""
        self.index = index
        """Of several transactions the place of the refused one."""


class Unreachable(ClientError):
    """A service could not be asked, and nothing was sent that could have an effect; the text says what to look at."""


class Mismatch(ClientError):
    """A service answered something else than was asked for, so nothing was signed; the text names the field."""

    def __init__(self, service: str, field: str, told: object, asked: object) -> None:
        super().__init__(
            f"nothing was signed: the {service} answered with another {field} than was asked for ({_printable(told)} "
            f"instead of {_printable(asked)}); check its address, and ask its operator"
        )
        self.service = service
        """`relayer` or `aggregator`."""
        self.field = field
        """By its name on the wire."""
        self.told = told
        self.asked = asked


def _printable(value: object) -> str:
    """The beginning of a value without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:200])


class OutcomeUnknown(ClientError):
    """What became of a transaction could not be found out in time; it may still run.

    `hash` is what to ask for later (`Relayer.outcome`), `state` what was heard of it last, `why` what hindered, and
    `accepted` whether the relayer said that it took it; None: its answer was lost.
    """

    def __init__(self, tx_hash: str, state: str, accepted: bool | None, why: str) -> None:
        super().__init__(f"transaction {tx_hash} was last known as {state}: {why}")
        self.hash = tx_hash
        self.state = state
        self.accepted = accepted
        self.why = why


class SlowReader(ClientError):
    """A subscription with the policy `close` was not read fast enough, and has ended."""


class WalletError(ClientError, ValueError):
    """A key file, a mnemonic or a password is wrong; the text never holds any of it."""


class TransactionError(ClientError, ValueError):
    """A transaction has an impossible field; the text names it."""
