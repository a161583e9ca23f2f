"""What a relayer has claimed: what of it is open, what is in its own journal, and what the server has yet to be told.

Nothing here waits or asks. `Sharing` claims, and tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from millrace.relayer.journal.progress import Progress
from millrace.relayer.journal.submissions import End

SLACK_MS = 600_000
"""A claim is made later than its time says: it waits for its turn, and for a server that is away."""


class OwnClaims:
    """The claims of our seat, by sender and nonce."""

    def __init__(self) -> None:
        self._position = 0
        """The seat's: how many commits of claims it has had."""
        self._progress = Progress()
        self._untold: set[tuple[bytes, int]] = set()
        """What `_progress` says is void or over."""
        self._open: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        """When claims that are not over were made, by the server's clock: ours may be set meanwhile."""
        self._unkept: dict[tuple[bytes, int], int] = {}
        """What was claimed, or may have been, and is not known to be signed, by the position before that."""
        self._kept_told = 0
        """Up to which position the server knows all to be signed."""
        self._let_go: list[tuple[bytes, int, bytes]] = []
        """What is void and never was in our journal."""
        self._failed: set[tuple[bytes, int]] = set()
        """What of them is known to have failed before it is known what it did cost."""

    @property
    def open(self) -> int:
        """Claims of ours that are not over."""
        return len(self._open)

    def has(self, sender: bytes, nonce: int) -> bool:
        """Whether a nonce is claimed for us and not over."""
        return (sender, nonce) in self._open

    def kept(self, names: Iterable[tuple[bytes, int]]) -> None:
        """These are signed, and in our journal: whoever is asked for them may say that they are accepted."""
        for name in names:
            self._unkept.pop(name, None)

    def void(self, claims: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Nothing was signed for these, by sender, nonce and client hash, and nothing will be: they are free again."""
        self._drop(claims)
        self._progress.void += claims

    def _drop(self, claims: Sequence[tuple[bytes, int, bytes]]) -> None:
        for sender, nonce, _ in claims:
            self._open.pop((sender, nonce), None)
            self._failed.discard((sender, nonce))
            self._untold.add((sender, nonce))

    def ended(self, ends: Sequence[End]) -> None:
        """Claims of ours are over. Of what was written off it is told, and its fee is still followed."""
        for item in ends:
            name = item[0], item[1]
            if item[5] is not None:
                self._open.pop(name, None)
                if name in self._failed:
                    self._failed.discard(name)
                    self._progress.failed.append(name)
            self._untold.add(name)
        self._progress.ends += ends

    def lose(self, sender: bytes, nonce: int) -> None:
        """A claim of ours did cost its fee, or will, and failed: who has the seat after us counts it as lost, too."""
        if self.has(sender, nonce):
            self._failed.add((sender, nonce))
        else:
            self._progress.failed.append((sender, nonce))

    def written_off_is_over(self, sender: bytes, nonce: int, state: str, cost: str | None, now_ms: int) -> None:
        """What was written off ran, or cannot run any more; without a cost that stays its fee."""
        name = sender, nonce
        self._open.pop(name, None)
        self._progress.ends.append((*name, None, state, cost, now_ms))
        if name in self._failed and state == "finished":
            self._progress.failed.append(name)
        self._failed.discard(name)

    def sent(self, sender: bytes, nonce: int) -> None:
        """What was only signed is to be broadcast; see `flush`."""
        self._progress.sent.add((sender, nonce))

    def signed(self, sender: bytes, nonce: int, signature: bytes) -> None:
        """What is only to be signed has its signature, which any relayer may tell to who asks with the same bytes."""
        self._progress.signed.append((sender, nonce, signature))

    def keep_cursor(self, sequence: int, place: str) -> None:
        """Events up to this one need not be read again by who has the seat after us."""
        self._progress.cursor, self._progress.cursor_place = sequence, place

    def _kept(self) -> int:
        """Up to which position all that was claimed is signed, let go of or over."""
        return min(self._unkept.values(), default=self._position)

    def _take(self, written: int, now_ms: int) -> Progress:
        """What is to be told, and of what is void so many as our own journal knows."""
        progress, self._progress = self._progress, Progress()
        self._untold.clear()
        if later := progress.void[written:]:
            del progress.void[written:]
            # How these ended is told with that: a claim that is over is not deleted.
            names = {(sender, nonce) for sender, nonce, _ in later}
            self._progress.void = later
            self._progress.ends = [item for item in progress.ends if item[:2] in names]
            progress.ends = [item for item in progress.ends if item[:2] not in names]
            self._progress.failed = [name for name in progress.failed if name in names]
            progress.failed = [name for name in progress.failed if name not in names]
            self._untold |= names
        progress.open_since = min(self._open.values(), default=now_ms) - SLACK_MS  # the first need not be the oldest
        progress.void += self._let_go
        self._let_go = []
        # What is void or over is told with this; the same bytes are not claimed again before (see `_serve`).
        self.kept(claim[:2] for claim in progress.void)
        self.kept(end[:2] for end in progress.ends)
        progress.kept = kept if (kept := self._kept()) > self._kept_told else 0
        return progress
