"""Would this be sponsored? The stages of a submission up to the reservation, for what nobody has signed yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from millrace.chain import address
from millrace.chain.fees import move_gas
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import GUARDED, TransactionJson, to_json
from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger.accounts import Account
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.protocol.wallets import PrepareReply, PrepareTransaction
from millrace.relayer.rules import policy, stages
from millrace.relayer.rules.stages import Origin, Relayers
from millrace.relayer.submission.finisher import SIGNED_BEFORE, answer_to_other
from millrace.relayer.submission.submitter import CLAIMS_UNREAD, STALE

VALID_MS = 60_000
"""As long as a subscription of a status lives: time enough to sign. Prices, budgets and nonces may move meanwhile."""

_json = msgspec.json.Encoder()


class Preparer:
    """Answers wallets; reserves nothing and keeps nothing."""

    def __init__(
        self,
        network: NetworkProfile,
        relayers: Callable[[], Relayers],
        accounts: AccountSource,
        lifecycle: Lifecycle,
        journal: Journal,
        is_ready: Callable[[], bool],
        usual_price: Callable[[int], int | None],
        wall_ms: Callable[[], int],
    ) -> None:
        self._network = network
        self._relayers = relayers
        self._accounts = accounts
        self._lifecycle = lifecycle
        self._journal = journal
        self._is_ready = is_ready
        self._usual_price = usual_price
        self._wall_ms = wall_ms

    async def prepare(self, asked: PrepareTransaction, origin: Origin) -> PrepareReply:
        """What would become of a transaction, and how to sign it. Raises `Refused` where the sender is no address."""
        try:
            sender = address.decode(asked.sender)
        except address.AddressError as error:
            raise Refused(reasons.INVALID_SENDER.but(f"sender: {error}")) from None
        shard = self._network.shard_of(sender)
        try:
            transaction, fee = await self._approve(asked, sender, shard, origin)
        except Refused as refusal:
            return self._refused(shard, refusal.reason)
        until = self._wall_ms() + VALID_MS
        extra = self._network.gas.extra_relayed
        return PrepareReply(True, shard, extra, transaction, str(fee), until)

    async def _approve(
        self, asked: PrepareTransaction, sender: bytes, shard: int, origin: Origin
    ) -> tuple[TransactionJson, int]:
        if not self._is_ready():
            raise Refused(reasons.NOT_READY.but("try again", 5_000))
        account = await self._accounts.know(sender)
        try:  # of nobody else it is known where a sender is: who takes its transactions may be any of them
            claims = await self._lifecycle.ask_elsewhere(sender, account.nonce)
        except JournalError:
            raise Refused(CLAIMS_UNREAD) from None
        try:
            return await self._approve_once(asked, sender, shard, account, origin, claims)
        except Refused as refusal:
            if refusal.reason.code not in STALE or not await self._accounts.refresh(sender):
                raise
        return await self._approve_once(asked, sender, shard, await self._accounts.know(sender), origin, claims)

    async def _approve_once(
        self,
        asked: PrepareTransaction,
        sender: bytes,
        shard: int,
        account: Account,
        origin: Origin,
        claims: dict[int, Claimed],
    ) -> tuple[TransactionJson, int]:
        transaction, fee = self._approve_now(asked, sender, shard, account, origin, claims)
        try:
            is_taken = await self._journal.is_taken(sender, transaction.nonce)
        except JournalError:
            raise Refused(reasons.NOT_READY.but("the journal cannot be read", 5_000)) from None
        if is_taken:  # what has it is not in flight any more, and may still be the only one that is ever signed
            raise Refused(SIGNED_BEFORE)
        return transaction, fee

    def _approve_now(
        self,
        asked: PrepareTransaction,
        sender: bytes,
        shard: int,
        account: Account,
        origin: Origin,
        claims: dict[int, Claimed],
    ) -> tuple[TransactionJson, int]:
        """The transaction to sign and the most it can cost its relayer. Raises `Refused`.

        `claims`: what other relayers of our keys have of the sender, by nonce.
        """
        relayers = self._relayers()
        ours = relayers.by_shard.get(shard)
        if ours is None:
            raise Refused(reasons.INVALID_RELAYER_ADDRESS.but(f"this service has no relayer for shard {shard}"))
        nonce = asked.nonce
        if nonce is None:
            nonce = self._lifecycle.inflight.expected_nonce(sender, account.nonce)
        price = asked.gas_price
        if price is None:
            price = self._price(shard)
        parsed = stages.parse(self._filled(asked, nonce, price, asked.relayer or address.encode(ours)), origin)
        if asked.gas_limit is None:
            tx = msgspec.structs.replace(parsed.tx, gas_limit=move_gas(parsed.tx, self._network.gas))
            parsed = stages.Parsed.of(tx, origin)
        examined = stages.examine(parsed, self._network, relayers)
        if nonce in self._lifecycle.inflight.of_sender(sender):
            raise Refused(reasons.CONFLICTING.but(f"nonce {nonce} is held by another transaction, which may still run"))
        fee = self._lifecycle.approvals.allowed_fee(examined, account)
        if nonce in claims:
            raise Refused(answer_to_other(nonce, claims[nonce]))
        self._lifecycle.sponsor.check_room(Entry.of(examined, fee, 0))
        return to_json(parsed.tx), fee

    def _filled(self, asked: PrepareTransaction, nonce: int, price: int, relayer: str) -> Raw:
        """The transaction object a wallet would send, but for its signature. Raises `Refused`."""
        for name, number in (("nonce", nonce), ("gasPrice", price), ("gasLimit", asked.gas_limit or 0)):
            if number >= 1 << 64:  # thousands of digits are read, and one more is not written
                raise Refused(reasons.BY_FIELD[name].but(f"{name}: more than 64 bits"))
        gas = asked.gas_limit or 0
        if asked.gas_limit is not None and not asked.relayer:
            gas += self._network.gas.extra_relayed
        return Raw(
            _json.encode(
                TransactionJson(
                    nonce=nonce,
                    value=asked.value,
                    receiver=asked.receiver,
                    sender=asked.sender,
                    gas_price=price,
                    gas_limit=gas,
                    version=2,
                    chain_id=self._network.chain_id,
                    sender_username=asked.sender_username,
                    receiver_username=asked.receiver_username,
                    data=asked.data,
                    options=asked.options | (GUARDED if asked.guardian else 0),
                    guardian=asked.guardian,
                    relayer=relayer,
                )
            )
        )

    def _price(self, shard: int) -> int:
        """What half of the shard's transactions pay, within what the network asks and what is sponsored."""
        sponsor = self._lifecycle.sponsor
        least = self._network.gas.min_gas_price
        most = policy.gas_price_cap(sponsor.policy.caps, sponsor.p90(shard))
        return max(least, min(self._usual_price(shard) or least, most))

    def _refused(self, shard: int, reason: Reason) -> PrepareReply:
        return PrepareReply(
            False,
            shard,
            self._network.gas.extra_relayed,
            reason=reason.reason,
            code=reason.code,
            detail=reason.detail or UNSET,
            retry_after_ms=reason.retry_after_ms or UNSET,
        )
