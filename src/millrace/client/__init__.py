"""The client, handed on from its own distribution, which needs none of the services: see `millrace_client`."""

from millrace_client import (
    Aggregator,
    ClientError,
    Handle,
    Hub,
    Millrace,
    Missed,
    Outcome,
    OutcomeUnknown,
    Quote,
    Refused,
    Relayer,
    Subscription,
    Transaction,
    Unreachable,
    Wallet,
    sign,
)

__all__ = [
    "Aggregator",
    "ClientError",
    "Handle",
    "Hub",
    "Millrace",
    "Missed",
    "Outcome",
    "OutcomeUnknown",
    "Quote",
    "Refused",
    "Relayer",
    "Subscription",
    "Transaction",
    "Unreachable",
    "Wallet",
    "sign",
]
