"""What a sender may still spend, and from which nonce, while what it sent waits to be executed.

Rules of the live selection (mx-chain-go 2.0, `txcache`): nonces go on from the newest proposal; the payer's fee must be
covered by what the proposals leave of its balance; a sender with something under way overspends with nothing more. What
transfers inside the data take, and what the proposals bring in, is not looked at: a transaction that this misses is
proposed, and then cannot be executed.
"""

from __future__ import annotations

from collections import Counter

from millrace.chain import fees
from millrace.chain.fees import GasSchedule
from millrace.chain.transaction import Transaction
from millrace.localnet.contracts.ledger import Ledger


class Accounts:
    """Accounts as they are: what is taken of the mempool is executed before the next is asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def used(self, sender: bytes) -> int:
        """How many nonces the sender has used."""
        return self._ledger.account(sender).nonce

    def nonce(self, sender: bytes) -> int:
        """The nonce that the sender's next transaction must have."""
        return self.used(sender)

    def covers(self, tx: Transaction) -> bool:
        """Whether the transaction may be taken as far as money goes: here its execution says so."""
        return True


class Selection(Accounts):
    """Accounts as of the last execution, and what is under way on top of it."""

    def __init__(self, ledger: Ledger, gas: GasSchedule) -> None:
        super().__init__(ledger)
        self._gas = gas
        self._nonces: dict[bytes, int] = {}
        self._spent: Counter[bytes] = Counter()

    def nonce(self, sender: bytes) -> int:
        """The nonce that follows all that is under way."""
        return max(self.used(sender), self._nonces.get(sender, 0))

    def covers(self, tx: Transaction) -> bool:
        """Whether what is under way leaves enough for the transaction."""
        payer, fee = tx.relayer or tx.sender, fees.initially_paid_fee(tx, self._gas)
        if self._spent[payer] + fee > self._ledger.balance_of(payer):
            return False
        spent = self._spent[tx.sender]
        own = fee if payer == tx.sender else 0
        return not spent or spent + own + tx.value <= self._ledger.balance_of(tx.sender)

    def take(self, tx: Transaction) -> None:
        """Count a transaction as under way."""
        self._nonces[tx.sender] = tx.nonce + 1
        self._spent[tx.relayer or tx.sender] += fees.initially_paid_fee(tx, self._gas)
        self._spent[tx.sender] += tx.value
