"""What the doctor looks at on this machine: settings, keys, data directory and journal, disk, files, policy, chain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.cli.doctor_chain import of_chain
from millrace.cli.findings import Finding

if TYPE_CHECKING:
    from millrace.relayer.settings import RelayerSettings

FREE_BYTES = 1024**3
"""Free space below which a disk is a fault: a day of a busy journal."""
_CHECK_SECONDS = 5.0
"""For which a journal is read through; a larger one is checked in part."""
_STEPS = 100_000  # of SQLite, between looks at the clock


def of_this_machine(file: Path | None) -> Iterator[Finding]:
    """Settings, keys, data directory, disk, files, policy and chain API of a relayer that runs here."""
    from millrace.cli.config import settings_of
    from millrace.cli.services import SERVICES
    from millrace.notifier.settings import NotifierSettings
    from millrace.relayer.settings import RelayerSettings
    from millrace.runtime.settings import SettingsError, load

    for service in SERVICES:
        try:
            count = len(list(settings_of(service, file, ())))
        except SettingsError as error:
            yield Finding("fault", "settings", str(error), "correct it; `millrace config` shows what holds")
            return
        yield Finding("ok", f"settings of {service}", f"all {count} are right")
    settings = load("relayer", RelayerSettings, file=file)
    yield from _of_key_files(settings.key_files, settings.network())
    yield from _of_folder(settings.data_dir, settings.mark_path)
    yield from _of_disks(settings.data_dir, load("notifier", NotifierSettings, file=file).data_dir)
    yield from _of_files(settings.max_connections)
    if settings.policy_file:
        seats = settings.claims_seats if settings.claims_url else 1
        yield from _of_policy(settings.policy_file, Path(settings.data_dir), seats)
    if settings.chain_api_url:
        yield from _of_its_chain(settings)


def _of_key_files(files: tuple[str, ...], network: Any) -> Iterator[Finding]:
    if not files:
        yield Finding("warning", "keys", "no key_files: this relayer pays for nobody", "`millrace keys new` makes one")
        return
    from millrace.relayer.signing.keystore import KeyStoreError, public_keys

    shards: dict[int, str] = {}
    for file in files:
        try:
            shard = network.shard_of(public_keys((file,))[0])
            mode = Path(file).stat().st_mode & 0o077
        except (KeyStoreError, OSError) as error:
            yield Finding("fault", "keys", str(error), "name a PEM or keystore file that this user may read")
            continue
        if mode:
            yield Finding("fault", "keys", f"{file}: others may read it", f"chmod 600 {file}")
        if shard in shards:
            text = f"{file} and {shards[shard]} are both of shard {shard}"
            yield Finding("fault", "keys", text, "leave one of them out of key_files")
        shards[shard] = file
    rule = "" if network.shard_rule == "mask" else f" --rule {network.shard_rule}"
    for shard in sorted(set(range(network.shards)) - set(shards)):
        remedy = f"`millrace keys new FILE --form pem --shard {shard}{rule}`, and name it in key_files"
        yield Finding("warning", "keys", f"nobody pays for shard {shard}", remedy)


def _of_folder(folder: Path, mark_path: str) -> Iterator[Finding]:
    """Whether the relayer would start with it, and whether its journal is whole."""
    import sqlite3

    from millrace.relayer.journal import identity, memory
    from millrace.relayer.journal.advice import WHAT_TO_DO, advice
    from millrace.relayer.journal.chain import ChainError
    from millrace.relayer.journal.mark import Mark, MarkError

    try:
        ours = identity.read(folder)
        identity.check_may_start(folder, ours)
        owner = identity.owner_of(folder)
    except (identity.IdentityError, OSError) as error:
        remedy = "see Memory in docs/relayer-operating.md" if folder.exists() else "`millrace relayer init` makes it"
        yield Finding("fault", "data directory", str(error), remedy)
        return
    if owner not in (None, ours.id):
        text = f"the journal in {folder} is of the folder {owner}, its file `{identity.FILE}` of {ours.id}"
        yield Finding("fault", "data directory", text, "one of the two was copied here by itself: put both back")
        return
    journal = folder / identity.JOURNAL
    try:
        memory.look(journal, Mark(memory.mark_place(journal, mark_path), ours.id), ours)
    except (ChainError, MarkError) as error:
        yield Finding("fault", "journal", str(error), WHAT_TO_DO)
    except (sqlite3.Error, OSError) as error:
        yield Finding("fault", "journal", f"{journal}: {error}", advice(error))
    else:
        if owner is not None:
            yield from _of_journal(journal)


def _of_journal(file: Path) -> Iterator[Finding]:
    """Read it through as it is, beside a relayer that runs, for as long as a person waits."""
    import contextlib
    import sqlite3
    import time

    end, in_time = time.monotonic() + _CHECK_SECONDS, True

    def late() -> bool:
        nonlocal in_time
        in_time = time.monotonic() < end
        return not in_time

    try:
        with contextlib.closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        ) as reader:
            reader.set_progress_handler(late, _STEPS)
            (found,) = reader.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        found = str(error) if in_time else "ok"
    if found != "ok":
        remedy = "do not start with it: `millrace relayer restore` a backup, then `millrace relayer recover`"
        yield Finding("fault", "journal", f"{file}: {str(found).strip().splitlines()[-1]}", remedy)
    else:
        yield Finding("ok", "journal", f"{file} is whole" + ("" if in_time else f", as far as {_CHECK_SECONDS:g} s go"))


def _of_disks(*folders: Path) -> Iterator[Finding]:
    import shutil

    seen = set()
    for folder in folders:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        if free < FREE_BYTES:
            text = f"{free / 1024**2:.0f} MiB are free where {folder} is"
            yield Finding("fault", "disk", text, "free some: without room nothing new is accepted")
        else:
            yield Finding("ok", "disk", f"{free / 1024**3:.0f} GiB are free where {folder} is")


def _of_files(connections: int) -> Iterator[Finding]:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < connections:
        text = f"{most} files may be open, and max_connections is {connections}"
        yield Finding("warning", "files", text, "LimitNOFILE= in the unit, or ulimit -Hn")
    else:
        yield Finding("ok", "files", "as many as connections")


def _of_policy(file: str, folder: Path, seats: int) -> Iterator[Finding]:
    """Whether the relayer takes it over, as at a start, and it is enough for so many relayers."""
    import contextlib
    import sqlite3

    from millrace.relayer.journal import identity, reading
    from millrace.relayer.rules import policy
    from millrace.relayer.rules.policy_file import PolicyFile
    from millrace.relayer.rules.seats import too_small

    rules, remembered, wrong = PolicyFile(file, folder / policy.KEPT), None, ""
    with contextlib.suppress(sqlite3.Error):  # a finding of its own
        remembered = reading.meta(folder / identity.JOURNAL, reading.POLICY)
    try:
        rules.begin(remembered)
        wrong = rules.rejected
    except policy.PolicyError as error:
        wrong = str(error)
    if wrong:
        remedy = "correct it; until then the last good one holds: `millrace policy apply`"
        yield Finding("fault", "policy", wrong, remedy)
    elif names := too_small(rules.policy, seats):
        text = f"each of {seats} relayers has less than caps.fee of {', '.join(names)}"
        remedy = "raise them, or lower caps.fee or, with an empty schema, claims_seats"
        yield Finding("warning", "policy", text, remedy)
    else:
        yield Finding("ok", "policy", f"{file} is whole")


def _of_its_chain(settings: RelayerSettings) -> Iterator[Finding]:
    from millrace.chain import address
    from millrace.relayer.rules.policy import Policy, PolicyError, loads
    from millrace.relayer.signing.keystore import KeyStoreError, public_keys

    network, keys, policy = settings.network(), dict[int, str](), Policy()
    for file in settings.key_files:
        try:
            key = public_keys((file,))[0]
        except (KeyStoreError, OSError):
            continue  # a finding of its own
        keys[network.shard_of(key)] = address.encode(key)
    try:
        if settings.policy_file:
            policy = loads(Path(settings.policy_file).read_text(encoding="utf-8-sig"))
    except (PolicyError, OSError, UnicodeDecodeError):
        pass  # a finding of its own
    yield from of_chain(settings.chain_api_url, network.chain_id, keys, policy.budget.alert_balance)
