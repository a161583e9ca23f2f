"""Form and signatures: every reason in its exact words, and stages that cannot be skipped."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from relayer_support import NETWORK, RELAYERS, as_json, raw, sign, transfer, wallet

from millrace.chain import address, call
from millrace.chain.transaction import GUARDED, HASH_SIGNED, Transaction, signing_message
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import stages
from millrace.relayer.rules.policy import Target
from millrace.relayer.rules.stages import Origin, Parsed, Relayers

OURS = Relayers({shard: pair.public for shard, pair in RELAYERS.items()})
ALICE = wallet(1)


def outcome(tx: Any, kind: Any = "relay") -> str:
    """The reason for which a transaction is refused, or `ok`."""
    try:
        stages.authenticate(stages.parse(raw(tx), Origin(kind, "ip")), NETWORK, OURS)
    except Refused as refusal:
        return refusal.reason.reason
    return "ok"


def changed(**fields: Any) -> dict[str, Any]:
    """A valid transaction object with fields replaced; `None` removes one."""
    obj = as_json(transfer(ALICE)) | fields
    return {name: value for name, value in obj.items() if value is not None}


def test_valid() -> None:
    """A transfer signed with the shard's relayer in place passes; so does a plain one for broadcast."""
    assert outcome(transfer(ALICE)) == "ok"
    assert outcome(transfer(ALICE, relayed=False), "broadcast") == "ok"
    assert outcome(transfer(ALICE, options=HASH_SIGNED)) == "ok"


FIELDS = [
    ("nonce", -1, "invalid nonce"),
    ("nonce", 1.5, "invalid nonce"),
    ("nonce", "1", "invalid nonce"),
    ("nonce", None, "invalid nonce"),
    ("nonce", 2**64, "invalid nonce"),
    ("nonce", True, "invalid nonce"),
    ("value", "-1", "invalid value"),
    ("value", "+1", "invalid value"),
    ("value", "01", "invalid value"),
    ("value", "1e3", "invalid value"),
    ("value", "", "invalid value"),
    ("value", "9" * 81, "invalid value"),
    ("value", "9" * 40, "invalid value"),
    ("value", 1, "invalid value"),
    ("value", "\u0661", "invalid value"),
    ("receiver", "erd1qqq", "invalid receiver address"),
    ("sender", "ERD1", "invalid sender address"),
    ("sender", None, "invalid sender address"),
    ("gasPrice", 999_999_999, "gas price too low"),
    ("gasPrice", "1000000000", "invalid gas price"),
    ("gasLimit", 99_999, "gas limit too low"),
    ("gasLimit", 600_000_001, "gas limit too high"),
    ("gasLimit", -5, "invalid gas limit"),
    ("data", "YQ", "invalid data"),
    ("data", "YQ==\n", "invalid data"),
    ("data", "Y Q==", "invalid data"),
    ("data", "YR==", "invalid data"),
    ("chainID", "1", "invalid chain id"),
    ("chainID", "", "invalid chain id"),
    ("chainID", "loc\u0430l", "invalid chain id"),
    ("version", 0, "invalid transaction version"),
    ("version", "2", "invalid transaction version"),
    ("options", -1, "invalid options"),
    ("signature", "", "invalid signature"),
    ("signature", None, "invalid signature"),
    ("signature", "zz" * 64, "invalid signature"),
    ("signature", "00" * 64, "invalid signature"),
    ("signature", "00" * 63, "invalid signature"),
    ("relayer", None, "relayer field missing"),
    ("relayer", "", "relayer field missing"),
    ("relayer", "erd1x", "invalid relayer address"),
    ("guardian", "erd1x", "invalid guardian"),
    ("senderUsername", "!", "invalid username"),
    ("senderUsername", "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=", "invalid username"),
]


@pytest.mark.parametrize(("field", "value", "reason"), FIELDS)
def test_field(field: str, value: Any, reason: str) -> None:
    """Each impossible field has its own reason."""
    assert outcome(changed(**{field: value})) == reason


def test_relayer_of_null() -> None:
    """A relayer written as null is one that is missing."""
    assert outcome(as_json(transfer(ALICE)) | {"relayer": None}) == "relayer field missing"


def test_not_an_object() -> None:
    """What is no transaction object is an invalid transaction, however it is wrong."""
    for text in (b"1", b"[]", b"null", b'"x"', b"{}" + b"x", b"[" * 5000):
        with pytest.raises(Refused):
            stages.parse(msgspec.Raw(text), Origin("relay", ""))


def test_upper_case_address() -> None:
    """Upper-case bech32 is refused: it would be signed as lower case."""
    upper = address.encode(ALICE.public).upper()
    assert outcome(changed(sender=upper)) == "invalid sender address"


def test_submission_reason_invalid_relayer_address() -> None:
    """The relayer must be the one of the sender's shard."""
    other = transfer(ALICE)
    for shard in (0, 2):
        wrong = sign(other, ALICE, relayer=RELAYERS[shard].public)
        assert outcome(wrong) == "invalid relayer address"
    assert outcome(sign(other, ALICE, relayer=wallet(1, 7).public)) == "invalid relayer address"


def test_submission_reason_invalid_user_signature() -> None:
    """A signature made before `relayer` was set is told apart from a signature that is simply wrong."""
    tx = transfer(ALICE)
    early = sign(msgspec.structs.replace(tx, relayer=b""), ALICE)
    late = msgspec.structs.replace(tx, signature=early.signature)
    assert outcome(late) == "invalid user signature"
    assert outcome(sign(tx, wallet(1, 1))) == "invalid signature"
    assert outcome(msgspec.structs.replace(tx, gas_limit=200_000)) == "invalid signature"


def test_a_relayer_added_after_signing_is_told_before_the_gas_it_needs() -> None:
    """Who signs without a relayer gives no gas for one: the signature is what to mend, the gas comes with it."""
    early = sign(msgspec.structs.replace(transfer(ALICE), relayer=b"", gas_limit=50_000), ALICE)
    late = msgspec.structs.replace(early, relayer=RELAYERS[1].public)
    assert outcome(late) == "invalid user signature"
    assert outcome(sign(late, ALICE)) == "gas limit too low", "signed with the relayer in place"
    assert outcome(msgspec.structs.replace(late, gas_limit=49_999)) == "gas limit too low", "too low without one too"
    assert outcome(msgspec.structs.replace(late, nonce=5)) == "gas limit too low", "signed by nobody"


def detail(tx: Any, ours: Relayers = OURS) -> str | None:
    with pytest.raises(Refused) as refused:
        stages.authenticate(stages.parse(raw(tx), Origin("relay", "ip")), NETWORK, ours)
    return refused.value.reason.detail


def test_details_have_the_words_clients_know_and_what_to_do() -> None:
    """`missing relayer` and `shard mismatch` begin the details; the latter names the relayer to use."""
    tx = transfer(ALICE)
    for missing in (changed(relayer=None), changed() | {"relayer": None}):
        assert str(detail(missing)).startswith("missing relayer: ")
    wrong = str(detail(sign(tx, ALICE, relayer=RELAYERS[2].public)))
    assert wrong.startswith("shard mismatch: the relayer is of shard 2; ")
    assert wrong.endswith(f"name {address.encode(RELAYERS[1].public)}")
    unknown = str(detail(sign(tx, ALICE, relayer=wallet(1, 7).public)))
    assert unknown.startswith("unknown relayer; ") and unknown.endswith(address.encode(RELAYERS[1].public))
    assert str(detail(tx, Relayers({}))).endswith("this service has no relayer there")


def test_a_transfer_with_a_nonce_goes_to_oneself() -> None:
    """`ESDTNFTTransfer` to oneself has its receiver inside, as lists and quotas see it; to others it is refused."""
    inside, data = wallet(2, 4).public, call.encode("ESDTNFTTransfer", b"NFT-123456", b"\2", b"\7")
    whole = data + b"@" + inside.hex().encode()
    own = transfer(ALICE, receiver=ALICE.public, data=whole)
    examined = stages.examine(stages.parse(raw(own), Origin("relay", "ip")), NETWORK, OURS)
    assert examined.target == Target(inside, "")
    assert outcome(transfer(ALICE, receiver=inside, data=whole)) == "invalid data"
    assert outcome(transfer(ALICE, receiver=ALICE.public, data=data)) == "invalid data"
    ours = transfer(ALICE, receiver=ALICE.public, data=data + b"@" + RELAYERS[0].public.hex().encode())
    assert outcome(ours) == "relayer key not allowed as sender, guardian or receiver"


def test_a_transfer_that_every_node_fails_is_not_sponsored() -> None:
    """It would cost the relayer its fee, for nothing: a token transfer with a value, of nothing, or to oneself."""
    inside, tokens = wallet(2, 4).public, call.esdt_transfer("USDC-c76f1f", 7)
    assert outcome(transfer(ALICE, receiver=inside, data=tokens)) == "ok"
    assert outcome(transfer(ALICE, receiver=inside, data=tokens, value=1)) == "invalid data"
    assert outcome(transfer(ALICE, receiver=inside, data=call.esdt_transfer("USDC-c76f1f", 0))) == "invalid data"
    own = call.multi_transfer(ALICE.public, [call.TokenPayment("USDC-c76f1f", 0, 7)])
    assert outcome(transfer(ALICE, receiver=ALICE.public, data=own)) == "invalid data"


@pytest.mark.parametrize("kind", ["relay", "broadcast"])
def test_the_price_of_naming_a_guardian_is_bounded(kind: str) -> None:
    """Nodes take it up to a gas price of their own where no guardian signs; everything else they take at any price."""
    naming = call.encode("SetGuardian", wallet(0, 3).public, b"service")
    most, relayed = 2_000_000_000, kind == "relay"

    def priced(gas_price: int, data: bytes) -> str:
        tx = transfer(ALICE, relayed=relayed, receiver=ALICE.public, data=data, gas_price=gas_price, gas_limit=300_000)
        return outcome(tx, kind)

    assert [priced(most, naming), priced(most + 1, naming)] == ["ok", "gas price too high"]
    assert [priced(most + 1, b"SetGuardian"), priced(most + 1, b"GuardAccount@01")] == ["ok", "ok"]
    whole = sign(guarded(), ALICE, data=naming, gas_price=most + 1, gas_limit=400_000)
    assert outcome(msgspec.structs.replace(whole, guardian_signature=wallet(0, 3).sign(signing_message(whole)))) == "ok"


def guarded(**changes: Any) -> Any:
    guardian = wallet(0, 3)
    tx = sign(transfer(ALICE), ALICE, guardian=guardian.public, options=GUARDED, gas_limit=150_000)
    tx = msgspec.structs.replace(tx, guardian_signature=guardian.sign(signing_message(tx)))
    return msgspec.structs.replace(tx, **changes)


def test_guarded_accounts() -> None:
    """A guarded transaction needs its guardian's signature; others must not carry one."""
    assert outcome(guarded()) == "ok"
    assert outcome(guarded(guardian_signature=b"")) == "invalid guardian signature"
    assert outcome(guarded(guardian_signature=b"\1" * 64)) == "invalid guardian signature"
    assert outcome(sign(guarded(), ALICE, guardian=b"")) == "invalid guardian"
    assert outcome(sign(guarded(), ALICE, options=0)) == "invalid guardian"
    assert outcome(msgspec.structs.replace(transfer(ALICE), guardian_signature=b"\1" * 64)) == "invalid guardian"


def test_broadcast_of_relayed_needs_its_signature() -> None:
    """A relayed transaction is broadcast only with its relayer's signature, whoever that relayer is."""
    foreign = wallet(1, 9)
    tx = transfer(ALICE)
    assert outcome(tx, "broadcast") == "invalid relayer signature"
    tx = sign(tx, ALICE, relayer=foreign.public)
    whole = msgspec.structs.replace(tx, relayer_signature=foreign.sign(signing_message(tx)))
    assert outcome(whole, "broadcast") == "ok"
    assert outcome(sign(whole, ALICE, relayer=b""), "broadcast") == "relayer field missing"
    elsewhere = sign(tx, ALICE, relayer=wallet(2, 9).public)
    assert outcome(elsewhere, "broadcast") == "invalid relayer address"


@pytest.mark.parametrize(
    ("tx", "detail"),
    [
        (msgspec.structs.replace(transfer(ALICE), signature=b""), "set all of them, then sign"),
        (msgspec.structs.replace(transfer(ALICE), options=1), "set all of them, then sign"),
        (msgspec.structs.replace(guarded(), guardian_signature=b""), "signs what the sender signs"),
        (sign(guarded(), ALICE, options=0), "options 2"),
        (sign(guarded(), ALICE, guardian=b""), "options 2"),
    ],
)
def test_what_to_do_about_signatures(tx: Transaction, detail: str) -> None:
    """Who signed too early, not at all, or without saying so in the options, is told what to do."""
    with pytest.raises(Refused) as refusal:
        stages.authenticate(Parsed.of(tx, Origin("relay", "")), NETWORK, OURS)
    assert detail in (refusal.value.reason.detail or "")


def test_a_guardian_does_not_pay_for_whom_it_guards() -> None:
    """A broadcast whose relayer is its guardian is refused, as every node would."""
    guardian = wallet(1, 9)
    tx = sign(guarded(), ALICE, guardian=guardian.public, relayer=guardian.public)
    signature = guardian.sign(signing_message(tx))
    whole = msgspec.structs.replace(tx, guardian_signature=signature, relayer_signature=signature)
    assert outcome(whole, "broadcast") == "invalid relayer address"


def test_a_relayer_signature_that_comes_along_is_made_anew() -> None:
    """Bytes that were co-signed before, as by /v1/sign, are the same request with the same client hash."""
    tx = transfer(ALICE)
    whole = msgspec.structs.replace(tx, relayer_signature=b"\7" * 64)
    for kind in ("relay", "sign"):
        first, again = (stages.parse(raw(item), Origin(kind, "ip")) for item in (tx, whole))  # type: ignore[arg-type]
        assert again == first and again.tx.relayer_signature == b""


def test_no_account_can_hold_more_than_exists() -> None:
    """A value of all the coins there are is a value; one more is none."""
    assert outcome(sign(transfer(ALICE), ALICE, value=stages.GENESIS_SUPPLY)) == "ok"
    assert outcome(sign(transfer(ALICE), ALICE, value=stages.GENESIS_SUPPLY + 1)) == "invalid value"


@pytest.mark.parametrize("verdict", ["invalid signature", "relayer key as party", "what nobody has ever said"])
def test_row_2_any_objection_of_the_signing_process_counts(verdict: str) -> None:
    """Only silence of the signing process vouches for a transaction, whatever else it says."""
    examined = stages.examine(stages.parse(raw(transfer(ALICE)), Origin("relay", "")), NETWORK, OURS)
    assert type(stages.vouched(examined, "")) is stages.Authenticated
    with pytest.raises(Refused):
        stages.vouched(examined, verdict)


def test_row_15_nested_relayed_calls() -> None:
    """A relayed transaction whose data is itself a relayed call is refused, also inside a token transfer."""
    for function in ("relayedTx", "relayedTxV2", "relayedTxV3"):
        data = call.encode(function, b"x")
        assert outcome(transfer(ALICE, data=data, gas_limit=500_000)) == "nested relayed transaction"
        inside = call.esdt_transfer("A-123456", 1, function, b"x")
        assert outcome(transfer(ALICE, data=inside, gas_limit=500_000)) == "nested relayed transaction"


def test_row_15_nested_relayed_calls_are_not_broadcast() -> None:
    """Also one that somebody's relayer has signed: every node would refuse it."""
    for function in ("relayedTx", "relayedTxV2", "relayedTxV3"):
        foreign = wallet(1, 9)
        tx = sign(transfer(ALICE), ALICE, relayer=foreign.public, data=call.encode(function, b"x"), gas_limit=500_000)
        whole = msgspec.structs.replace(tx, relayer_signature=foreign.sign(signing_message(tx)))
        assert outcome(whole, "broadcast") == "nested relayed transaction"


def test_row_2_stages_cannot_be_skipped() -> None:
    """Each stage is made from the one before and from nothing else."""
    parsed = stages.parse(raw(transfer(ALICE)), Origin("relay", ""))
    examined = stages.examine(parsed, NETWORK, OURS)
    authenticated = stages.verify(examined, signing_message(parsed.tx))
    approved = stages.Approved(authenticated, 1)
    reserved = stages.Reserved(approved)
    journalled = stages.Journalled(reserved)
    stages.Signed(journalled, parsed.tx)
    chain: list[Any] = [parsed, examined, authenticated, approved, reserved, journalled]
    makers: list[Any] = [
        lambda before: stages.Examined(before, 1, 1),
        stages.Authenticated,
        lambda before: stages.Approved(before, 1),
        stages.Reserved,
        stages.Journalled,
        lambda before: stages.Signed(before, parsed.tx),
    ]
    for place, make in enumerate(makers):
        for other, before in enumerate(chain):
            if other != place:
                with pytest.raises(TypeError):
                    make(before)
