"""What claims fail with: they are another's, nobody pays, or it is not known what became of them."""

from __future__ import annotations

from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.writer import JournalError, NonceTaken


class ClaimsError(JournalError):
    """Claims cannot be made, read or told. The text may be the server's, and is for operators."""

    is_in_doubt = False
    """Whether what was to be claimed may be claimed all the same: who has the seat next would run it then."""

    def in_doubt(self) -> ClaimsError:
        """The same, and what was asked may have come through."""
        self.is_in_doubt = True
        return self


class ClaimDamaged(ClaimsError):
    """The server cannot read what it has of these claims."""


class TakenElsewhere(NonceTaken):
    """Another relayer, or another payload, has the nonce."""

    def __init__(self, claimed: Claimed) -> None:
        super().__init__("a nonce of this sender is claimed")
        self.claimed = claimed


class ProgrammeFull(NonceTaken):
    """No programme pays for it: count or budget are used up, by all relayers of the key together."""

    def __init__(self) -> None:
        super().__init__("the programme pays for no more of this sender's")
