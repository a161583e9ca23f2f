"""Every reason for which the relayer refuses something: the words clients match on, and a stable code.

The words of the public interface are exact; those it does not list are additions. `detail` says what to do
next and may change at any time.
"""

from __future__ import annotations

import re

import msgspec


class Reason(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Why something was refused."""

    reason: str
    code: str
    detail: str | None = None
    retry_after_ms: int | None = None

    def but(self, detail: str | None = None, retry_after_ms: int | None = None) -> Reason:
        """The same reason with particulars."""
        return Reason(self.reason, self.code, detail, retry_after_ms)


class Refused(Exception):
    """A request, or one transaction of it, is refused for `reason`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.reason)
        self.reason = reason


def _reason(text: str) -> Reason:
    """A reason whose code is its text in snake case: letters, digits and single underscores."""
    return Reason(text, re.sub(r"[^a-z0-9]+", "_", text))


# Control messages.
INVALID_MESSAGE = _reason("invalid message")
UNKNOWN_TOPIC = _reason("unknown topic")
INVALID_TOPIC_ADDRESS = _reason("invalid bech32 address in topic")
INVALID_TOPIC_HASH = _reason("invalid transaction hash in topic")
TOPIC_LIMIT = _reason("topic limit reached")
RATE_LIMIT = _reason("rate limit exceeded")
MESSAGE_TOO_LARGE = _reason("message too large")
BATCH_TOO_LARGE = _reason("batch too large")
EMPTY_BATCH = _reason("empty batch")
SUBSCRIPTIONS_FULL = _reason("too many subscriptions")

# Transactions: form.
INVALID_TRANSACTION = _reason("invalid transaction")
INVALID_NONCE = _reason("invalid nonce")
INVALID_VALUE = _reason("invalid value")
INVALID_RECEIVER = _reason("invalid receiver address")
INVALID_SENDER = _reason("invalid sender address")
INVALID_GAS_PRICE = _reason("invalid gas price")
INVALID_GAS_LIMIT = _reason("invalid gas limit")
INVALID_DATA = _reason("invalid data")
INVALID_CHAIN_ID = _reason("invalid chain id")
INVALID_VERSION = _reason("invalid transaction version")
INVALID_OPTIONS = _reason("invalid options")
INVALID_USERNAME = _reason("invalid username")
INVALID_GUARDIAN = _reason("invalid guardian")
GAS_PRICE_TOO_LOW = _reason("gas price too low")
GAS_PRICE_TOO_HIGH = _reason("gas price too high")
GAS_LIMIT_TOO_LOW = _reason("gas limit too low")
GAS_LIMIT_TOO_HIGH = _reason("gas limit too high")

# Transactions: who signed.
INVALID_RELAYER_ADDRESS = _reason("invalid relayer address")
RELAYER_FIELD_MISSING = _reason("relayer field missing")
INVALID_RELAYER_SIGNATURE = _reason("invalid relayer signature")
INVALID_USER_SIGNATURE = _reason("invalid user signature")
INVALID_SIGNATURE = _reason("invalid signature")
INVALID_GUARDIAN_SIGNATURE = _reason("invalid guardian signature")

# Transactions: state of the account.
NONCE_TOO_LOW = _reason("nonce too low")
NONCE_TOO_HIGH = _reason("nonce too high")
INSUFFICIENT_BALANCE = _reason("insufficient balance")
WRITTEN_OFF = _reason("written off")
CONFLICTING = _reason("conflicting transaction")
TOO_MANY_IN_FLIGHT = _reason("too many transactions in flight")
ACCOUNT_UNAVAILABLE = _reason("account state unavailable")

# Transactions: policy.
RELAYER_AS_PARTY = _reason("relayer key not allowed as sender, guardian or receiver")
NESTED_RELAYED = _reason("nested relayed transaction")
DATA_TOO_LARGE = _reason("data too large")
VALUE_TOO_HIGH = _reason("value too high")
FEE_TOO_HIGH = _reason("fee too high")
SENDER_NOT_ALLOWED = _reason("sender not allowed")
RECEIVER_NOT_ALLOWED = _reason("receiver not allowed")
FUNCTION_NOT_ALLOWED = _reason("function not allowed")
SHARD_PAUSED = _reason("shard paused")
BUDGET_EXHAUSTED = _reason("budget exhausted")
INVALID_API_KEY = _reason("invalid api key")
QUOTA_EXHAUSTED = _reason("quota exhausted")
SENDER_THROTTLED = _reason("sender throttled")
CALL_THROTTLED = _reason("call throttled")
RELAYER_BALANCE_LOW = _reason("relayer balance too low")

# The service itself.
BUSY = _reason("relayer busy")
SIGNER_UNAVAILABLE = _reason("signer unavailable")
SIGNER_REFUSED = _reason("signer refused")
NOT_READY = _reason("not ready")
INTERNAL = _reason("internal error")

IN_DOUBT = BUSY.but(
    "whether it was accepted is not known, and it may still run: send the same bytes again, or subscribe to "
    "tx-status/{hash}",
    1_000,
)
"""Of what was claimed, or may have been, and neither kept nor surely let go of."""

BY_FIELD = {
    "nonce": INVALID_NONCE,
    "value": INVALID_VALUE,
    "receiver": INVALID_RECEIVER,
    "sender": INVALID_SENDER,
    "gasPrice": INVALID_GAS_PRICE,
    "gasLimit": INVALID_GAS_LIMIT,
    "data": INVALID_DATA,
    "chainID": INVALID_CHAIN_ID,
    "version": INVALID_VERSION,
    "options": INVALID_OPTIONS,
    "senderUsername": INVALID_USERNAME,
    "receiverUsername": INVALID_USERNAME,
    "guardian": INVALID_GUARDIAN,
    "relayer": INVALID_RELAYER_ADDRESS,
    "signature": INVALID_SIGNATURE,
    "guardianSignature": INVALID_GUARDIAN_SIGNATURE,
    "relayerSignature": INVALID_RELAYER_SIGNATURE,
}
"""The reason for which an unreadable field of the transaction object is refused, by its JSON name."""
