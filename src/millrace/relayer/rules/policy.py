"""What the relayer sponsors: caps, lists, budgets and quotas, as values read from one TOML file.

The signing process reads the same file and checks the caps again, so that whoever takes over the service
still cannot sign beyond them. Amounts are in atomic units (10^-18 EGLD), written as text or number.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from millrace.chain import address, call
from millrace.chain.fees import initially_paid_fee
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import programmes
from millrace.relayer.rules.programmes import Programme

EGLD = 10**18
SHARDS = 3
"""With a key each; see `NetworkProfile`."""

KEPT = "last-good-policy.toml"
"""File of the last good policy in the data directory."""

MOST = 10**30
"""No entry is larger: amounts and numbers beyond it are slips of the pen."""
MAX_NAME = 64
"""Letters of somebody's name, which is in the row of each transaction of theirs."""
MOST_SECONDS = 10 * 366 * 86_400.0

_TRANSFERS = {name.encode() for name in (call.ESDT_TRANSFER, call.NFT_TRANSFER, call.MULTI_TRANSFER)}


class PolicyError(ValueError):
    """The policy file has a wrong entry; the text names it."""


class Caps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most one sponsored transaction may ask for."""

    gas_price: int = 10_000_000_000
    """Never above this, whatever others pay."""
    gas_price_floor: int = 2_000_000_000
    """Always allowed up to this, even when others pay less."""
    gas_price_percent_of_p90: int = 200
    """In between: this percentage of what nine in ten transactions pay at most."""
    gas_limit: int = 600_000_000
    fee: int = 5 * EGLD // 100
    data_bytes: int = 128 * 1024
    value: int = 1_000_000 * EGLD


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most one relayer key may spend on fees: worst case when signed, actual fee once known."""

    per_minute: int = 5 * EGLD
    per_hour: int = 50 * EGLD
    per_day: int = 200 * EGLD
    at_risk: int = 50 * EGLD
    """Signed and not yet known to be over."""
    at_risk_sign_only: int = 10 * EGLD
    """The part of `at_risk` that may be signed for others to broadcast."""
    loss_per_hour: int = 25 * EGLD
    """The most that may go to transactions that fail: what failed in the last hour and what may still fail."""
    floor_balance: int = 0
    """Sponsoring stops when the key's balance would fall below this."""
    alert_balance: int = EGLD
    """Below this the service logs a warning and raises a metric."""
    alert_seconds: float = 3600.0
    """The same once the key will be empty before so long at the present rate."""


SUMS = ("per_minute", "per_hour", "per_day", "at_risk", "at_risk_sign_only", "loss_per_hour")
"""What of a budget is counted."""


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most one sender, one IP address (of version 6: one /64 network) or one receiver may have sponsored."""

    sender_per_hour: int = EGLD
    ip_per_hour: int = 20 * EGLD
    receiver_per_hour: int = 100 * EGLD
    sender_at_risk_sign_only: int = EGLD
    """What one sender may hold co-signed by /v1/sign and not known to be over."""
    ip_at_risk_sign_only: int = 5 * EGLD
    """The same of one IP address."""
    sign_only_ahead: int = 100
    """How far above the account's nonce /v1/sign goes: what lies further ahead can be hoarded for longer."""
    sender_in_flight: int = 100
    ip_in_flight: int = 20_000
    """Transactions of one IP address that may be in flight, `broadcast` included."""
    failures: int = 5
    """So many sponsored transactions failing in a row, and their sender waits."""
    first_ban_seconds: float = 60.0
    """Doubled with each further failure."""
    longest_ban_seconds: float = 3600.0
    call_failure_percent: int = 90
    """A function of a contract is not sponsored while so many of its calls of the last hour failed …"""
    call_sample: int = 100
    """… out of at least this many."""


class Strangers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most strangers may hold of each pool of a key (budgets, at risk, losses), in percent; 100 is all of it.

    A share is never less than `caps.fee`.
    """

    together_percent: int = 75
    """All of them, where the policy names people: the rest is theirs. Where it names none it is all."""
    address_percent: int = 25
    """Of one client address while no other stranger holds anything; less, the more others do."""
    receiver_percent: int = 50
    """Of all transactions to one receiver that no allow-list names."""
    function_percent: int = 50
    """Of all calls of one function; the names of a contract's functions that never succeeded are one function."""
    sponsor_below: int = 0
    """Only senders that hold less are sponsored; 0 sponsors all."""
    sign_only_balance: int = 50_000_000_000_000
    """What a sender has to hold for /v1/sign beyond all that may be spent: what the cheapest transaction costs."""
    sign_only_seconds: float = 3600.0
    """What /v1/sign signed is broadcast by the relayer itself after so long, if it can run."""


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who shows an API key: bounded by a budget of their own, and not by what bounds strangers."""

    keys: tuple[str, ...] = ()
    """Hashes of the API keys, as `millrace policy new-key` prints them."""
    per_minute: int = 5 * EGLD
    """Of all relayer keys together, like the others."""
    per_hour: int = 50 * EGLD
    per_day: int = 200 * EGLD
    at_risk: int = 50 * EGLD
    at_risk_sign_only: int = 10 * EGLD
    loss_per_hour: int = 25 * EGLD

    @property
    def budget(self) -> Budget:
        """The same as the budget of a key is given."""
        return Budget(
            per_minute=self.per_minute,
            per_hour=self.per_hour,
            per_day=self.per_day,
            at_risk=self.at_risk,
            at_risk_sign_only=self.at_risk_sign_only,
            loss_per_hour=self.loss_per_hour,
        )


class Lists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who and what is sponsored. An empty allow-list allows all; a deny-list wins."""

    allow_receivers: tuple[str, ...] = ()
    deny_receivers: tuple[str, ...] = ()
    allow_functions: tuple[str, ...] = ()
    """Functions of contracts; a plain transfer is the empty function ""."""
    deny_functions: tuple[str, ...] = ()
    allow_contracts: tuple[str, ...] = ()
    """Contracts whose calls are sponsored: on a public relayer the ones it is run for. Who deploys a contract earns a
    share of the fees of its calls, so that calling one's own through a relayer turns its money into one's own."""
    allow_senders: tuple[str, ...] = ()
    deny_senders: tuple[str, ...] = ()


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file per field."""

    caps: Caps = Caps()
    budget: Budget = Budget()
    quotas: Quotas = Quotas()
    lists: Lists = Lists()
    strangers: Strangers = Strangers()
    people: dict[str, Person] = {}
    """By name."""
    programmes: dict[str, Programme] = {}
    """By name; the first that matches and has something left pays."""
    paused_shards: tuple[int, ...] = ()
    """Shards whose key signs nothing for now."""

    @property
    def together_percent(self) -> int:
        """What strangers may hold of each pool together."""
        return self.strangers.together_percent if self.people else 100


_OPEN = Lists()
_NAMED: dict[str, type[msgspec.Struct]] = {"people": Person, "programmes": Programme}
"""Tables of tables with names that their operator chooses."""
_WHOLE = "; amounts are whole numbers of atomic units (10^-18 EGLD), as 50000000000000000 for 0.05 EGLD"


def loads(text: str) -> Policy:
    """The policy in a TOML text. Raises `PolicyError`."""
    document = _parsed(text)
    _check_entries(document, Policy, "")
    listed = document.get("programmes")
    if isinstance(listed, dict) and (wrong := next(programmes.mistakes(listed, MOST), None)):
        raise PolicyError(wrong)
    try:
        policy = msgspec.convert(document, Policy, strict=False)
    except msgspec.ValidationError as error:
        raise PolicyError(_in_words(str(error))) from error
    for name in ("allow_receivers", "deny_receivers", "allow_contracts", "allow_senders", "deny_senders"):
        for entry in getattr(policy.lists, name):
            try:
                address.decode(entry)
            except address.AddressError as error:
                raise PolicyError(f"lists.{name}: {entry!r}: {error}") from error
    _check_ranges(policy)
    return policy


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(str(error)) from error
    except ValueError:  # of Python's own limit
        raise PolicyError("a number has thousands of digits") from None
    except RecursionError:
        raise PolicyError("nested too deeply") from None


def _check_entries(table: dict[str, Any], kind: type[msgspec.Struct], path: str) -> None:
    """Raise `PolicyError` for an entry there is not, with the one it may be meant to be, and for amounts not whole."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in table.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            known = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(fields)}"
            raise PolicyError(f"{f'[{path}] has' if path else 'there is'} no `{name}`: {known}")
        inner = fields[name]
        if name in _NAMED and isinstance(value, dict):
            for whose, entries in value.items():
                if isinstance(entries, dict):
                    _check_entries(entries, _NAMED[name], f"{name}.{whose}")
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _check_entries(value, inner, name)
        elif inner is int and isinstance(value, float | str) and not str(value).isdecimal():
            # The reader would take 9007199254740993.0 and "9007199254740993.0", and lose their last digit.
            raise PolicyError(f"{path}.{name}: {value!r} is no whole number{_WHOLE}")


def _in_words(text: str) -> str:
    """A refusal of the reader, with the entry's name first and what it should look like last."""
    what, _, path = text.partition(" - at ")
    name = path.strip("`").removeprefix("$.")
    hint = ""
    if what.startswith("Expected `int`"):
        hint = _WHOLE
    elif what.startswith("Expected `array`"):
        hint = '; a list is written ["…", "…"]'
    return f"{name}: {what}{hint}" if name else what


def _check_ranges(policy: Policy) -> None:
    """Raise `PolicyError` for values that cannot be meant."""
    for name, table in (
        ("caps", policy.caps),
        ("budget", policy.budget),
        ("quotas", policy.quotas),
        ("strangers", policy.strangers),
    ):
        for field in table.__struct_fields__:
            value = getattr(table, field)
            most, words = (MOST_SECONDS, "ten years") if isinstance(value, float) else (MOST, "10^30")
            if not 0 <= value <= most:
                raise PolicyError(f"{name}.{field}: negative, no number, or more than {words}")
    _check_people(policy.people)
    quotas = policy.quotas
    if quotas.failures < 1:
        raise PolicyError("quotas.failures: at least 1")
    if not 1 <= quotas.call_failure_percent <= 100:
        raise PolicyError("quotas.call_failure_percent: from 1 to 100; a large call_sample turns it off")
    for name in ("together_percent", "address_percent", "receiver_percent", "function_percent"):
        if not 1 <= getattr(policy.strangers, name) <= 100:
            raise PolicyError(f"strangers.{name}: from 1 to 100; 100 turns it off")
    for shard in policy.paused_shards:
        if not 0 <= shard < SHARDS:
            raise PolicyError(f"paused_shards: there is no shard {shard}, only 0 to {SHARDS - 1}")


def _check_people(people: dict[str, Person]) -> None:
    """Raise `PolicyError` for names and budgets that cannot be meant, and keys that are none or of two people.

    Without a name it would be a stranger, and every stranger them.
    """
    owners: dict[str, str] = {}
    for name, person in people.items():
        if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
            raise PolicyError(f"people: {name!r}: a name has 1 to {MAX_NAME} printable letters")
        for field in person.__struct_fields__[1:]:
            if not 0 <= getattr(person, field) <= MOST:
                raise PolicyError(f"people.{name}.{field}: negative, or more than 10^30")
        for key in person.keys:
            if not re.fullmatch("[0-9a-f]{64}", key):
                raise PolicyError(
                    f"people.{name}.keys: not the hash of an API key: `millrace policy new-key` makes both"
                )
            if owners.setdefault(key, name) != name:
                raise PolicyError(f"people.{name}.keys: one of them is of {owners[key]}, too")


def name_of(api_key: str, people: dict[str, Person]) -> str | None:
    """Whose API key it is."""
    hashed = hash_of_key(api_key)
    return next((name for name, person in people.items() if hashed in person.keys), None)


def hash_of_key(api_key: str) -> str:
    """What the policy file holds of an API key. They are long and random, so one hash is enough."""
    return blake2b(api_key.encode(errors="surrogateescape"), digest_size=32).hexdigest()  # as headers bring it


def gas_price_cap(caps: Caps, p90: int | None) -> int:
    """The highest gas price sponsored now; `p90` is that of the last blocks, if known."""
    usual = 0 if p90 is None else p90 * caps.gas_price_percent_of_p90 // 100
    return min(caps.gas_price, max(caps.gas_price_floor, usual))


def check_caps(tx: Transaction, policy: Policy, network: NetworkProfile) -> int:
    """The most the transaction can cost its relayer. Raises `Refused` when a cap is exceeded.

    These are the checks the signing process repeats.
    """
    caps = policy.caps
    if policy.paused_shards and network.shard_of(tx.sender) in policy.paused_shards:
        raise Refused(reasons.SHARD_PAUSED.but("its operator paused sponsoring", 60_000))
    if tx.gas_price > caps.gas_price:
        raise Refused(reasons.GAS_PRICE_TOO_HIGH.but(f"at most {caps.gas_price}"))
    if tx.gas_limit > caps.gas_limit:
        raise Refused(reasons.GAS_LIMIT_TOO_HIGH.but(f"at most {caps.gas_limit}"))
    if len(tx.data) > caps.data_bytes:
        raise Refused(reasons.DATA_TOO_LARGE.but(f"at most {caps.data_bytes} bytes"))
    if tx.value > caps.value:
        raise Refused(reasons.VALUE_TOO_HIGH.but(f"at most {caps.value}"))
    fee = initially_paid_fee(tx, network.gas)
    if fee > caps.fee:
        raise Refused(reasons.FEE_TOO_HIGH.but(f"it can cost {fee}, at most {caps.fee} is sponsored"))
    return fee


class CallName(NamedTuple):
    """A function of a contract."""

    contract: bytes
    function: str


class Target(msgspec.Struct, frozen=True, gc=False):
    """What a transaction does, as far as lists and quotas ask. Kept for as long as it is in flight."""

    receiver: bytes
    """Who really receives."""
    function: str
    """Empty for a plain transfer."""


def target_of(tx: Transaction) -> Target:
    """Who really receives, and which function is called, by its name however the arguments look.

    Data like `burn@0` is no readable call, and may still be one to somebody: lists match it by its name. Raises
    `CallError` for a token transfer that cannot be read, since what it names inside cannot be told.
    """
    if not tx.data:
        return Target(tx.receiver, "")
    try:
        call.parse(tx.data)
    except call.CallError:
        name = tx.data.partition(b"@")[0]
        if name in _TRANSFERS:
            raise
        return Target(tx.receiver, name.decode("utf-8", "replace"))
    parsed = call.payments_of(tx)
    return Target(parsed.receiver, parsed.function)


def check_lists(tx: Transaction, target: Target, lists: Lists) -> None:
    """Raise `Refused` unless sender, receiver and function are sponsored; `target` is what the transaction does."""
    if lists == _OPEN:
        return
    if not _allowed(address.encode(tx.sender), lists.allow_senders, lists.deny_senders):
        raise Refused(reasons.SENDER_NOT_ALLOWED)
    receivers = {address.encode(tx.receiver), address.encode(target.receiver)}
    if tx.receiver == tx.sender and target.receiver != tx.sender:
        receivers.discard(address.encode(tx.sender))  # a token transfer goes to oneself, its target inside
    for receiver in receivers:
        if not _allowed(receiver, lists.allow_receivers, lists.deny_receivers):
            raise Refused(reasons.RECEIVER_NOT_ALLOWED.but(receiver))
    if lists.allow_contracts and address.is_contract(target.receiver):
        contract = address.encode(target.receiver)
        if contract not in lists.allow_contracts:
            raise Refused(reasons.RECEIVER_NOT_ALLOWED.but(f"calls of {contract} are not sponsored"))
    if not _allowed(target.function, lists.allow_functions, lists.deny_functions):
        raise Refused(reasons.FUNCTION_NOT_ALLOWED.but(target.function[:64]))


def check_gas_price(tx: Transaction, policy: Policy, p90: int | None) -> None:
    """Raise `Refused` when the gas price is above what is usual now; up to the floor it never is."""
    cap = gas_price_cap(policy.caps, p90)
    if tx.gas_price > cap:
        raise Refused(reasons.GAS_PRICE_TOO_HIGH.but(f"at most {cap} now"))


def _allowed(name: str, allow: tuple[str, ...], deny: tuple[str, ...]) -> bool:
    return name not in deny and (not allow or name in allow)
