"""One running contract call: its arguments and payments, and the effects it has on the ledger."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from millrace.chain.abi import top_uint
from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS, is_identifier
from millrace.dex.pool import Pool
from millrace.localnet.contracts import builtin
from millrace.localnet.contracts.calls import BlockInfo, ContractCall, Event, Transfer
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.contracts.meter import SHALLOW, Meter

MAX_AMOUNT_BYTES = 32


class ContractError(Exception):
    """The contract reverts with this text."""


class Contract:
    """A contract: an address and endpoints. What it remembers is in the ledger, not here.

    `code_bytes` is the size of the code that is loaded at each execution.
    """

    code_bytes: int = 0

    def __init__(self, address: bytes) -> None:
        self.address = address
        self.endpoints: Mapping[str, Endpoint] = {}
        self.views: Mapping[str, View] = {}

    def stored(self, state: "State") -> Mapping[bytes, bytes]:
        """What others may read of the contract's storage, by key."""
        return {}


class State(msgspec.Struct):
    """What contracts run on: a shard's ledger, the contracts that live there, and who else lives there.

    The chain puts the block being made into `block`. The deeper the contracts' tries are (`trie_depth`), the dearer is
    a first read. A guardian counts `guardian_epochs` after it was named.
    """

    ledger: Ledger
    contracts: Mapping[bytes, Contract]
    is_local: Callable[[bytes], bool]
    block: BlockInfo = BlockInfo()
    trie_depth: int = SHALLOW
    guardian_epochs: int = 1


class Arguments:
    """A call's arguments, taken one by one. Every fault is a `ContractError`."""

    def __init__(self, args: Sequence[bytes]) -> None:
        self._args = args
        self._next = 0

    def take(self) -> bytes:
        """The next argument as it is."""
        if self._next >= len(self._args):
            raise ContractError("wrong number of arguments")
        self._next += 1
        return self._args[self._next - 1]

    def number(self) -> int:
        """The next argument as an unsigned number."""
        data = self.take()
        if len(data) > MAX_AMOUNT_BYTES:
            raise ContractError(f"argument decode error: a number of {len(data)} bytes")
        return int.from_bytes(data, "big")

    def token(self) -> str:
        """The next argument as a token identifier."""
        text = self.take().decode("ascii", "replace")
        if text not in (NATIVE, NATIVE_IN_TRANSFERS) and not is_identifier(text):
            raise ContractError(f"argument decode error: {text[:40]!r} is not a token identifier")
        return text

    def boolean(self) -> bool:
        """The next argument as true or false."""
        value = self.number()
        if value > 1:
            raise ContractError("argument decode error: neither true nor false")
        return value == 1

    def rest(self) -> int:
        """How many arguments are left."""
        return len(self._args) - self._next

    def end(self) -> None:
        """There must be no more."""
        if self.rest():
            raise ContractError("wrong number of arguments")


Endpoint = Callable[["Frame"], None]
"""A function of a contract that transactions can call."""

View = Callable[[State, Arguments], list[bytes]]
"""A question to a contract: answers with values, changes nothing."""


class Frame:
    """A call in progress. Its methods change the ledger and keep the log of what happened."""

    def __init__(self, state: State, call: ContractCall) -> None:
        self.state = state
        self.ledger = state.ledger
        self.call = call
        self.caller = call.sender
        self.args = Arguments(call.args)
        self.meter = Meter(call.gas_limit, state.trie_depth)
        self.events: list[Event] = []
        self.transfers: list[Transfer] = []
        self.results: list[bytes] = []
        self.payments = _payments(call)

    # What came with the call

    def take_payments(self) -> None:
        """Put what came with the call into the called contract."""
        for payment in self.payments:
            if payment.nonce:
                raise ContractError(f"fungible token expected, got {payment.token} with a nonce")
            if payment.amount <= 0:
                raise ContractError("Zero input amount")
            self.ledger.credit(self.call.receiver, payment.token, payment.amount)

    def no_payment(self) -> None:
        """The endpoint takes nothing."""
        if self.payments:
            raise ContractError("function does not accept payments")

    def one_payment(self) -> TokenPayment:
        """The only payment."""
        if len(self.payments) != 1:
            raise ContractError(f"incorrect number of transfers: expected 1, got {len(self.payments)}")
        return self.payments[0]

    # Effects

    def emit(self, address: bytes, identifier: str, *topics: bytes, data: bytes = b"") -> None:
        """Add an event to the log."""
        self.events.append(Event(address, identifier, topics, data))

    def pay(self, source: bytes, receiver: bytes, *assets: tuple[str, int]) -> None:
        """Pay (token, amount) pairs from a contract to a contract or an account; zeros are left out."""
        payments = [TokenPayment(token, 0, amount) for token, amount in assets if amount]
        for payment in payments:
            self._deliver(source, receiver, payment)
        tokens = [payment for payment in payments if payment.token not in (NATIVE, NATIVE_IN_TRANSFERS)]
        if len(tokens) < len(payments):
            value = sum(payment.amount for payment in payments) - sum(payment.amount for payment in tokens)
            self.events.append(builtin.value_event(source, receiver, value))
        if tokens:
            self.events.append(builtin.event(source, receiver, tokens))

    def _deliver(self, source: bytes, receiver: bytes, payment: TokenPayment) -> None:
        local = receiver in self.state.contracts or self.state.is_local(receiver)
        self.ledger.debit(source, payment.token, payment.amount)
        if local:
            self.ledger.credit(receiver, payment.token, payment.amount)
        if receiver not in self.state.contracts:
            token = NATIVE if payment.token == NATIVE_IN_TRANSFERS else payment.token
            self.transfers.append(Transfer(source, receiver, token, 0, payment.amount, local))

    def mint(self, contract: bytes, token: str, amount: int) -> None:
        """Create tokens in a contract's account."""
        if amount:
            self.ledger.credit(contract, token, amount)
            self.emit(contract, "ESDTLocalMint", token.encode(), b"", top_uint(amount))

    def burn(self, contract: bytes, token: str, amount: int) -> None:
        """Destroy tokens in a contract's account."""
        if amount:
            self.ledger.debit(contract, token, amount)
            self.emit(contract, "ESDTLocalBurn", token.encode(), b"", top_uint(amount))

    def put_pool(self, pool: Pool) -> None:
        """Put a pool in place of its former state."""
        self.ledger.put_pools((pool,))


def _payments(call: ContractCall) -> tuple[TokenPayment, ...]:
    """All that came with a call, EGLD under its own name."""
    payments = tuple(
        payment._replace(token=NATIVE) if payment.token == NATIVE_IN_TRANSFERS else payment for payment in call.payments
    )
    if call.value and all(payment.token != NATIVE for payment in payments):
        return TokenPayment(NATIVE, 0, call.value), *payments
    return payments
