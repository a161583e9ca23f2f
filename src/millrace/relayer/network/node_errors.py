"""What an answer to a submitted transaction means: whose fault it is, and whether to try again.

A transaction that no node will ever take says nothing about the node; taking it for a node's trouble would pause
everybody's transactions. Texts are those of the nodes' and the gateway's sources.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["transaction", "request", "transient", "provider"]
"""`transaction`: these bytes will never be taken; `request`: we asked in a way nobody understands; `transient`: later,
without blame (too many requests, a nonce that is not its turn yet, a balance that can be filled); `provider`: the
other side is in trouble. Only the last two say anything about its health."""

_TRANSIENT = (
    "veryhighnonceintx: true",
    "insufficient funds",
    "insufficient balance",
    "system busy",
    "system_busy",
    "too many requests",
    "node is starting",
    "no observer",
    "sending request error",
    "timeout",
)
_TRANSACTION = (
    "transaction generation failed",
    "lowernonceintx: true",
    "invalid signature",
    "invalid chain id",
    "invalid transaction version",
    "insufficient gas limit in tx",
    "insufficient gas price in tx",
    "more gas was provided than gas limit",
    "invalid relayed transaction",
    "shard id missmatch",
    "relayed by guardian not allowed",
    "guarded relayer not allowed",
    "recursive relayed tx is not allowed",
    "relayed transaction v3 not allowed",
    "transaction is not executable",
    "guardian address not expected",
    "guardian signature not expected",
    "tx value is out of bounds",
    "tx value is too big",
    "negative value",
    "nil signature",
    "nil value",
    "invalid user name length",
    "invalid rcv addr",
    "invalid snd addr",
    "invalid address",
    "encoding/hex",
)


def classify(status: int, text: str) -> Kind:
    """The kind of an error answer, from its HTTP status and its text."""
    words = text.lower()
    if status in (408, 425, 429):
        return "transient"
    # A gateway wraps a node's reason into a text of its own: what may pass goes before what will not.
    if any(part in words for part in _TRANSIENT):
        return "transient"
    if any(part in words for part in _TRANSACTION):
        return "transaction"
    if 400 <= status < 500:
        return "request"
    return "provider"
