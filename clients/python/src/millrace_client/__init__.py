"""Client of millrace's services, and of others that speak the same interface.

`Millrace` joins an aggregator and a relayer; `millrace_client.sync` has the same without `async`.
"""

from millrace_client.aggregator import Aggregator
from millrace_client.client import Millrace
from millrace_client.errors import (
    ClientError,
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
from millrace_client.relayer import Relayer, Submitted
from millrace_client.transaction import Transaction
from millrace_client.wallet import Signer, Wallet, sign

__all__ = [
    "Aggregator",
    "ClientError",
    "Event",
    "Handle",
    "Hub",
    "Millrace",
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
