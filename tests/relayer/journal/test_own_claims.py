"""What of a relayer's claims others may promise."""

from __future__ import annotations

from millrace.relayer.journal.own_claims import OwnClaims


def kept(claims: OwnClaims, written: int = 0) -> int:
    """Up to which position the server is told that they may, once it is told all that the journal knows."""
    return claims._take(written, 0).kept


def test_what_is_signed_void_or_over_holds_nothing_back() -> None:
    """Others may promise all before the first claim that can still be refused, and that ends with being told."""
    claims = OwnClaims()
    claims._position, claims._unkept = 9, {(b"a", 1): 1, (b"b", 1): 2, (b"c", 1): 3, (b"d", 1): 4}
    claims.kept([(b"a", 1)])
    assert kept(claims) == 2
    claims.void([(b"b", 1, b"h")])
    assert kept(claims) == 2, "our journal does not know of it yet, and may have it after a kill"
    assert kept(claims, written=1) == 3
    claims.ended([(b"c", 1, b"h", "superseded", None, 5)])
    assert claims._kept() == 3, "not before its end is told"
    assert kept(claims) == 4
    claims._let_go.append((b"d", 1, b"h"))
    assert kept(claims) == 9
