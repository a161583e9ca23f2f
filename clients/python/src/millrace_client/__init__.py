"""Client of millrace's services, and of others that speak the same interface.

`Millrace` joins an aggregator and a relayer; `millrace_client.sync` has the same without `async`. Names are loaded when
they are used: who wants a wallet only does not wait for an event loop.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace_client.aggregator import Aggregator
    from millrace_client.client import Millrace
    from millrace_client.errors import (
        ClientError,
        Mismatch,
        OutcomeUnknown,
        Refused,
        SlowReader,
        TransactionError,
        Unreachable,
        WalletError,
    )
    from millrace_client.handle import Handle
    from millrace_client.http import Patience
    from millrace_client.hub import Event, Hub
    from millrace_client.mailbox import Subscription
    from millrace_client.messages import Missed, Outcome, RelayerKey, Relayers
    from millrace_client.quotes import Quote
    from millrace_client.relayer import Relayer
    from millrace_client.submitted import Submitted
    from millrace_client.transaction import Transaction
    from millrace_client.wallet import Signer, Wallet, sign

__all__ = [
    "Aggregator",
    "ClientError",
    "Event",
    "Handle",
    "Hub",
    "Millrace",
    "Mismatch",
    "Missed",
    "Outcome",
    "OutcomeUnknown",
    "Patience",
    "Quote",
    "Refused",
    "Relayer",
    "RelayerKey",
    "Relayers",
    "Signer",
    "SlowReader",
    "Submitted",
    "Subscription",
    "Transaction",
    "TransactionError",
    "Unreachable",
    "Wallet",
    "WalletError",
    "sign",
]

_HOMES = {
    "Aggregator": "aggregator",
    "ClientError": "errors",
    "Event": "hub",
    "Handle": "handle",
    "Hub": "hub",
    "Millrace": "client",
    "Mismatch": "errors",
    "Missed": "messages",
    "Outcome": "messages",
    "OutcomeUnknown": "errors",
    "Patience": "http",
    "Quote": "quotes",
    "Refused": "errors",
    "Relayer": "relayer",
    "RelayerKey": "messages",
    "Relayers": "messages",
    "Signer": "wallet",
    "SlowReader": "errors",
    "Submitted": "submitted",
    "Subscription": "mailbox",
    "Transaction": "transaction",
    "TransactionError": "errors",
    "Unreachable": "errors",
    "Wallet": "wallet",
    "WalletError": "errors",
    "sign": "wallet",
}


def __getattr__(name: str) -> Any:
    """A name of this package, from the module that it lives in."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
