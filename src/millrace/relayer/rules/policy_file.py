"""The policy in a file: only a whole one holds, and the last good one stays in force, also after a restart.

A file is whole when its last line is a checksum of all lines before it, as `millrace policy apply` writes it. One
without such a line, written by hand, may be cut or half written: it is taken when there is no other yet, and when it
is in no entry looser than what is in force. So a file that is cut anywhere, emptied or without some of its tables never
makes the relayer pay for more.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from millrace.relayer.rules.policy import Policy, PolicyError, loads
from millrace.relayer.rules.policy_changes import looser
from millrace.runtime import files

SEAL = "# checksum blake2b "
_DIGEST = 32


def seal(text: str) -> str:
    """The text with a last line that tells whether it is whole; one it has already is made anew."""
    body, _ = _split(text)
    body += "" if body.endswith("\n") or not body else "\n"
    return f"{body}{SEAL}{_checksum(body)}\n"


def is_whole(text: str) -> bool:
    """Whether the last line says that nothing of the text is missing. Raises `PolicyError` where it says otherwise."""
    body, named = _split(text)
    if not named:
        return False
    if named != f"{SEAL}{_checksum(body)}":
        raise PolicyError("its checksum does not fit: cut, or changed by hand since `millrace policy apply` wrote it")
    return True


def _split(text: str) -> tuple[str, str]:
    """What the last line is of, and the last line, if it is one with a checksum."""
    lines = text.splitlines(keepends=True)
    if lines and lines[-1].startswith(SEAL.rstrip()):
        return "".join(lines[:-1]), lines[-1].rstrip()
    return text, ""


def checksum(text: str) -> str:
    """Of the text that a file would have, without its last line: of a policy by hand as of the whole one made of it."""
    return seal(text).splitlines()[-1].removeprefix(SEAL)


def _checksum(body: str) -> str:
    return blake2b(body.encode(), digest_size=_DIGEST).hexdigest()


def write(path: Path, text: str) -> None:
    """Put a whole file in a file's place, so that whoever reads it sees the old one or this. Raises `OSError`.

    A link stays one: the file is put where it leads to.
    """
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(seal(text))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    files.sync(path.parent)


def in_force(path: Path, kept: Path) -> Policy:
    """What holds, or will at the next start, as far as files tell: a whole file, else the last good one, else the file.

    The last good one is older than a whole file that nobody has taken over yet.
    """
    for file, must_be_whole in ((path, True), (kept, False), (path, False)):
        try:
            if file.exists():
                text = _text_of(file)
                if is_whole(text) or not must_be_whole:
                    return loads(text)
        except PolicyError:
            continue
    return Policy()


class PolicyFile:
    """The policy in a file, read again when the file changes; without a path it is the default.

    `kept` is where the last good one is written before it holds, or only read from (`keeps` false).
    """

    def __init__(self, path: str, kept: Path | None = None, *, keeps: bool = False) -> None:
        self._path = Path(path) if path else None
        self._kept = kept if path else None
        self._keeps = keeps
        self._remembered: str | None = None
        self.remember: Callable[[str], None] = lambda checksum: None
        """Called with the checksum of each policy that is kept, before it is. Raises `OSError`."""
        self._seen: tuple[int, ...] | None = None
        self._known = False
        """Whether there is a last good one."""
        self.policy = Policy()
        """The last good one."""
        self.rejected = ""
        """Why the file as it is now does not hold, if so."""
        self.lost = ""
        """What is wrong with the last good one of the run before, if anything is."""

    @property
    def is_changed(self) -> bool:
        """Whether `refresh` would read anything."""
        try:
            return self._path is not None and _seen(self._path) != self._seen
        except PolicyError:
            return True

    def refresh(self) -> bool:
        """Read the file if it is another than the last that was read; whether there is a new policy.

        Raises `PolicyError` when it does not hold, as while somebody is still writing it: the policy stays the last
        good one, and the next call tries again. One that cannot be kept holds at once if it is in nothing looser.
        """
        if self._path is None:
            return False
        try:
            new = self._read(self._path)
        except PolicyError as error:
            self.rejected = f"{self._path}: {error}"
            raise PolicyError(self.rejected) from None
        self.rejected = ""
        return new

    def begin(self, remembered: str | None = None) -> None:
        """Take over the last good policy, then the file, if it can be. Raises `PolicyError` when there is neither.

        `remembered` is the checksum of the last good one, where somebody else knows it: its file may be lost, or old.
        """
        self._remembered = remembered
        damaged: PolicyError | None = None
        try:
            self._take_over()
        except PolicyError as error:
            damaged, self.lost = error, str(error)
        try:
            if damaged is not None and self._path is not None and not self._is_trusted(_text_of(self._path)):
                raise damaged
            self.refresh()
        except PolicyError as error:
            if not self._known:
                raise damaged or error from None

    def _is_trusted(self, text: str) -> bool:
        """Whether the file says by itself that it is meant: it is whole, or the very one that was in force."""
        return is_whole(text) or (self._remembered is not None and checksum(text) == self._remembered)

    def _take_over(self) -> None:
        """The last good policy of an earlier run. Raises `PolicyError` when it is damaged, or not the last one."""
        if self._kept is None or (self._remembered is None and not self._kept.exists()):
            return
        try:
            if not self._kept.exists():
                raise PolicyError("the last good policy is missing")
            text = _text_of(self._kept)
            if not is_whole(text):
                raise PolicyError("its last line is missing")
            if self._remembered is not None and checksum(text) != self._remembered:
                raise PolicyError("it is an older copy, and not the last good policy")
            self.policy, self._known = loads(text), True
            if self._keeps and self._remembered is None:
                self._note(text)
        except PolicyError as error:
            advice = "put the policy in force again with `millrace policy apply`"
            raise PolicyError(f"{self._kept}: {error}; {advice}") from None

    def _note(self, text: str) -> None:
        """Have it remembered that this is the last good policy."""
        name = checksum(text)
        if name != self._remembered:
            self._remembered = None  # one that was not noted in time may be noted all the same
            self.remember(name)
            self._remembered = name

    def _read(self, path: Path) -> bool:
        seen = _seen(path)
        if seen == self._seen:
            return False
        text = _text_of(path)
        whole = is_whole(text)
        policy = loads(text)
        if self._known and not whole and (entries := looser(self.policy, policy)):
            raise PolicyError(
                f"looser in {', '.join(entries[:8])} than the policy in force, and without a whole file's checksum; "
                f"if that is meant: millrace policy apply {path} --allow-looser"
            )
        if self._keeps and self._kept is not None:
            try:
                self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._note(text)  # first: what was noted and not kept is known by the file
                write(self._kept, text)
            except OSError as error:
                if self._known and not looser(self.policy, policy):  # what pays for less need not wait for a disk
                    self.policy = policy
                raise PolicyError(f"cannot be kept as the last good one ({error})") from None
        self.policy, self._known, self._seen = policy, True, seen
        return True


def _seen(path: Path) -> tuple[int, ...]:
    """What a file that is another has otherwise: two writes within one tick differ in size, or in the file itself.

    Whoever copies a file in its place may keep the time of its contents; nobody can keep that of its change.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise PolicyError(f"cannot be read ({error})") from None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"cannot be read ({error})") from None
