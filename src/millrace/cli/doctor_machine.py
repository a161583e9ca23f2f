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
    yield from _of_folder(settings.data_dir)
    yield from _of_disks(settings.data_dir, load("notifier", NotifierSettings, file=file).data_dir)
    yield from _of_files(settings.max_connections)
    if settings.policy_file:
        yield from _of_policy(Path(settings.policy_file), settings.claims_seats if settings.claims_url else 1)
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


def _of_folder(folder: Path) -> Iterator[Finding]:
    """Whether the relayer would start with it, and whether its journal is whole."""
    from millrace.relayer.journal import identity

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
    elif owner is not None:
        yield from _of_journal(folder / identity.JOURNAL)


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


def _of_policy(file: Path, seats: int) -> Iterator[Finding]:
    """Whether it is one, and enough for so many relayers."""
    from millrace.relayer.rules.policy import PolicyError, loads
    from millrace.relayer.rules.seats import too_small

    try:
        policy = loads(file.read_text(encoding="utf-8-sig"))
    except (PolicyError, OSError, UnicodeDecodeError) as error:
        remedy = "correct it; until then the last good one holds: `millrace policy apply`"
        yield Finding("fault", "policy", f"{file}: {error}", remedy)
    else:
        if names := too_small(policy, seats):
            text = f"each of {seats} relayers has less than caps.fee of {', '.join(names)}"
            yield Finding(
                "warning", "policy", text, "raise them, or lower caps.fee or, with an empty schema, claims_seats"
            )
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
