"""Whether a transaction may go on: its nonce, its account, the room there is, the policy and what a safe start forbids.

Nothing is taken here. What is allowed is reserved in the same step of the event loop (`lifecycle.py`), so that no two
transactions can both have the last of anything.
"""

from __future__ import annotations

from millrace.chain.fees import initially_paid_fee
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction
from millrace.relayer.journal.recovery import SafeStart
from millrace.relayer.journal.submissions import MAX_NONCE
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger import checks
from millrace.relayer.ledger.accounts import Account
from millrace.relayer.ledger.inflight import Entry, InFlight
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.stages import Approved, Authenticated, Examined, Origin


class Approvals:
    """Asked before a transaction is reserved; what is in flight and what a key of ours may pay decides."""

    def __init__(self, network: NetworkProfile, inflight: InFlight, sponsor: Sponsor, max_nonce_gap: int) -> None:
        self._network = network
        self._inflight = inflight
        self._sponsor = sponsor
        self._max_nonce_gap = max_nonce_gap
        self.safe_start: SafeStart | None = None
        """What to keep to where the journal does not know all that was signed."""

    def existing(self, item: Authenticated) -> Entry | None:
        """The entry of the same bytes. Raises `Refused` when others hold its (sender, nonce)."""
        parsed = item.examined.parsed
        tx = parsed.tx
        entry = self._inflight.of_sender(tx.sender).get(tx.nonce)
        if entry is None or entry.client_hash == parsed.client_hash:
            return entry
        known = (entry.chain_hash or entry.client_hash).hex()
        raise Refused(reasons.CONFLICTING.but(f"nonce {tx.nonce} is held by {known}, which may still run"))

    def again(self, item: Authenticated, entry: Entry) -> Approved:
        """The same bytes as an entry's: what was approved stays approved."""
        return Approved(item, entry.fee)

    def approve(self, item: Authenticated, account: Account, payer: Account | None = None) -> Approved:
        """Check nonce, balance and, for what a relayer key is to pay, the policy. Raises `Refused`.

        `payer` is the relayer's account where a `broadcast` names one.
        """
        return Approved(item, self.allowed_fee(item.examined, account, payer, is_signed=True))

    def allowed_fee(
        self, examined: Examined, account: Account, payer: Account | None = None, *, is_signed: bool = False
    ) -> int:
        """The checks of `approve`, which need no signature; the most it can cost whoever pays. Raises `Refused`.

        `is_signed`: by its sender, who is remembered after a safe start. For what anybody can ask nothing is written.
        """
        parsed = examined.parsed
        tx, origin = parsed.tx, parsed.origin
        if tx.nonce < account.nonce:
            raise Refused(reasons.NONCE_TOO_LOW.but(f"the next nonce is {account.nonce}"))
        expected = self._inflight.expected_nonce(tx.sender, account.nonce)
        if tx.nonce > expected + self._max_nonce_gap:
            raise Refused(reasons.NONCE_TOO_HIGH.but(f"the next nonce is {expected}"))
        if tx.nonce > MAX_NONCE:
            raise Refused(reasons.INVALID_NONCE.but(f"at most {MAX_NONCE}"))
        committed = self._inflight.committed(tx.sender, account.nonce, tx.nonce) + self._inflight.owed(tx.sender)
        if origin.kind == "sign":
            checks.check_sign_only(tx, account, committed, origin, self._sponsor.policy)
        checks.check_guardian(tx, account, origin)
        self._check_room(tx.sender, origin)
        sponsored = origin.is_sponsored
        fee = 0 if sponsored else initially_paid_fee(tx, self._network.gas)
        cost = tx.value + (0 if tx.is_relayed else fee)
        if cost + committed > account.balance:
            raise Refused(reasons.INSUFFICIENT_BALANCE.but(f"it needs {cost}, the account has {account.balance}"))
        if payer is not None:
            owed = self._inflight.committed(tx.relayer, payer.nonce) + self._inflight.owed(tx.relayer)
            if fee + owed > payer.balance:
                raise Refused(reasons.INSUFFICIENT_BALANCE.but(f"it costs its relayer {fee}, which has not as much"))
        if not sponsored:
            return fee
        if not self._sponsor.programme_for(examined):
            checks.check_need(account, origin, self._sponsor.policy)
        fee = self._sponsor.check(examined, self._inflight.owed(tx.relayer))
        if self.safe_start is not None:  # behind the sponsor's checks: it may still be waiting
            self._check_known(self.safe_start, tx, parsed.client_hash, account, is_signed)
        return fee

    def _check_known(
        self, safe_start: SafeStart, tx: Transaction, client_hash: bytes, account: Account, is_signed: bool
    ) -> None:
        """After a safe start nothing may be signed for which there may be another payload."""
        try:
            if is_signed:
                safe_start.note(tx.sender, account.nonce)
            reason = safe_start.why_not_this(tx.sender, tx.nonce, client_hash, account.nonce)
        except JournalError:
            raise Refused(reasons.NOT_READY.but("the journal cannot be read", 5_000)) from None
        if reason is not None:
            raise Refused(reasons.CONFLICTING.but(reason))

    def _check_room(self, sender: bytes, origin: Origin) -> None:
        """Nobody may fill the table for the others: not a sender, not an address, not what is free of charge."""
        quotas = self._sponsor.policy.quotas
        if not self._inflight.has_room(origin.kind):
            raise Refused(reasons.BUSY.but("too many transactions are in flight", 1_000))
        if len(self._inflight.of_sender(sender)) >= quotas.sender_in_flight:
            raise Refused(reasons.TOO_MANY_IN_FLIGHT.but("wait for earlier ones", 1_000))
        if self._inflight.of_ip(origin.ip) >= quotas.ip_in_flight:
            raise Refused(reasons.TOO_MANY_IN_FLIGHT.but("of this address; wait for earlier ones", 1_000))
