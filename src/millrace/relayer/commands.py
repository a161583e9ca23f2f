"""`millrace relayer VERB`: what operators do with a data directory. Each imports what it needs only when it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from millrace.runtime.settings import SettingsError, load, parse_overrides
from millrace.runtime.terminal import Seconds, say

if TYPE_CHECKING:
    from millrace.relayer.journal.journal import Journal
    from millrace.relayer.journal.recovery import Recovery
    from millrace.relayer.settings import RelayerSettings


MOST_NONCE = 2**63 - 1
"""The largest that a journal has a row for."""


class Given(NamedTuple):
    """Where settings come from, as named before the verb."""

    config: Path | None
    pairs: tuple[str, ...]


def _with_settings(command: Any) -> Any:
    """The options of a verb that name settings."""
    command = click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One relayer setting.")(command)
    return click.option("--config", type=click.Path(path_type=Path), help="TOML file with the relayer's settings.")(
        command
    )


def _settings(config: Path | None, pairs: tuple[str, ...]) -> RelayerSettings:
    """The settings of a verb: its own options, after those of `millrace relayer`."""
    from millrace.relayer.settings import RelayerSettings

    before = click.get_current_context().obj
    given = before if isinstance(before, Given) else Given(None, ())
    try:
        overrides = parse_overrides(given.pairs) | parse_overrides(pairs)
        return load("relayer", RelayerSettings, file=config or given.config, overrides=overrides)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _shown(*kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds are what the command says."""
    try:
        yield
    except kinds as error:
        raise click.ClickException(str(error)) from error


@click.command()
@_with_settings
def init(config: Path | None, pairs: tuple[str, ...]) -> None:
    """Make the data directory, or adopt one of an earlier version."""
    from millrace.relayer.journal import identity

    folder = Path(_settings(config, pairs).data_dir)
    adopted = (folder / identity.JOURNAL).exists()
    with _shown(identity.IdentityError):
        made = identity.make(folder)
    if adopted:
        say(f"{folder} is of an earlier version and has an identity from now on. What its journal says is kept.")
        say("Go on only if it is the folder that was used last with its keys: what another one signed is not")
        say("known here (then: `millrace relayer recover`).")
    else:
        say(f"{folder} is made. Keep it: what is in it is what keeps a nonce from being signed twice.")
    say(f"identity {made.id}, epoch {made.epoch}")


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@_with_settings
def backup(destination: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Copy the data directory to a new folder; the relayer may run meanwhile."""
    from millrace.relayer.journal import backup as copies
    from millrace.relayer.journal.leases import when

    settings = _settings(config, pairs)
    with _shown(copies.BackupError):
        manifest = copies.backup(Path(settings.data_dir), destination, settings.mark_path)
    say(f"{len(manifest.files)} files, {sum(file.size for file in manifest.files)} bytes of the folder")
    say(f"{manifest.id} (epoch {manifest.epoch}) as it was at {when(manifest.made_ms)} are in {destination}")
    _say_left_out(manifest.left_out)


def _say_left_out(items: Sequence[str]) -> None:
    for item in items:
        say(f"Left out, as it is damaged and nothing hangs on it: {item}")


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_with_settings
def restore(source: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Put a backup into the data directory, which must be new or empty; a safe start has to follow."""
    from millrace.relayer.journal import backup as copies
    from millrace.relayer.journal import identity
    from millrace.relayer.journal.leases import when

    folder = Path(_settings(config, pairs).data_dir)
    with _shown(copies.BackupError, identity.IdentityError):
        manifest = copies.restore(source, folder)
        shared = identity.shares(folder)
    say(f"{folder} is as the folder {manifest.id} was at {when(manifest.made_ms)}.")
    if shared:
        say(f"It does not start: {identity.SHARES}.")
    else:
        say("What was signed since then is not in it, so it does not start yet: see `millrace relayer recover`.")


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@_with_settings
def move(destination: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Have the data directory live in a new folder; the relayer must be stopped, and the old folder starts no more."""
    from millrace.relayer.journal import backup as copies
    from millrace.relayer.journal import holding, leases, moving
    from millrace.relayer.signing import keystore

    settings = _settings(config, pairs)
    folder = Path(settings.data_dir)
    with (
        _shown(copies.BackupError, leases.LeaseError, keystore.KeyStoreError, OSError),
        holding.opened(settings) as store,
    ):
        keys = keystore.public_keys(settings.key_files, settings.key_env)
        moved = moving.move(folder, destination, keys, store, settings.mark_path)
    say(f"{folder} lives in {destination} now (epoch {moved.epoch}): start the relayer with that data_dir.")
    _say_left_out((moved.note,) if moved.note else ())


@click.command()
@click.option("--wait", type=Seconds(), help="Seconds until anything is signed; by default lifetime_seconds.")
@click.option(
    "--ahead",
    type=click.IntRange(0, MOST_NONCE),
    help="Nonces beyond an account's that may have been signed; by default the policy's.",
)
@click.option("--forget-spending", is_flag=True, help="Do not count what may have been spent meanwhile.")
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be done.")
@_with_settings
def recover(
    wait: float | None, ahead: int | None, forget_spending: bool, yes: bool, config: Path | None, pairs: tuple[str, ...]
) -> None:
    """Make a safe start where the journal is older than what was signed, or lost."""
    from millrace.relayer.journal import backup as copies
    from millrace.relayer.journal import holding, identity, leases, recovery
    from millrace.relayer.rules import policy
    from millrace.relayer.rules.policy_file import PolicyFile
    from millrace.relayer.signing import keystore

    settings = _settings(config, pairs)
    folder = Path(settings.data_dir)
    with _shown(
        copies.BackupError, identity.IdentityError, leases.LeaseError, recovery.RecoveryError, policy.PolicyError,
        keystore.KeyStoreError, OSError,
    ), copies.stopped(folder), holding.opened(settings) as store:  # fmt: skip
        rules = PolicyFile(settings.policy_file, folder / policy.KEPT)
        rules.begin()
        keys = keystore.public_keys(settings.key_files, settings.key_env)
        plan = recovery.prepare(
            folder,
            keys,
            store,
            wait_seconds=settings.lifetime_seconds if wait is None else wait,
            ahead=min(recovery.bound(rules.policy.quotas, settings.max_nonce_gap), MOST_NONCE)
            if ahead is None
            else ahead,
            charges=not forget_spending,
        )
        for line in _told(plan, len(keys)):
            say(line)
        if yes:
            recovery.make(folder, keys, store, plan, place=leases.place_of(folder), mark_path=settings.mark_path)
    say(f"{folder} has epoch {plan.epoch} and starts." if yes else "Nothing was changed: add --yes to do it.")


def _told(plan: Recovery, keys: int) -> Iterator[str]:
    """A safe start in words."""
    from millrace.relayer.journal.leases import when

    known = f"after {when(plan.known_ms)}" if plan.known_ms else "ever"
    yield f"Missing: whatever was signed with the {keys} keys {known}; they were last held {when(plan.held_ms)}."
    if plan.set_back_ms:
        yield f"Their clock was set back by {plan.set_back_ms // 1000} s meanwhile: they were in use so much longer."
    yield f"Nothing is signed before {when(plan.until_ms)}."
    if plan.ahead:
        yield f"Then a sender's first {plan.ahead} nonces, counted from its account's when it comes, are refused,"
        yield "as others may have been signed for them; new keys (SIGHUP) have no such past."
    else:
        yield "Then signing begins at each account's nonce: A SECOND PAYLOAD IS POSSIBLE for what was signed and lost."
    if plan.charges:
        yield "The most that may have been spent meanwhile counts in the budgets of minute, hour and day."


@click.command("export-claims")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_with_settings
def export_claims(file: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Write per sender the highest nonce that may have been signed for; the relayer may run meanwhile."""
    from millrace.relayer.journal import claims

    settings = _settings(config, pairs)
    with _shown(claims.ClaimsError):
        count = claims.export(Path(settings.data_dir), file, settings.network().chain_id, settings.mark_path)
        gaps = claims.gaps(Path(settings.data_dir))
    say(f"claims of {count} senders are in {file}")
    for gap in gaps:
        say(gap)


@click.command("import-claims")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_with_settings
def import_claims(file: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Take over what another journal may have signed; the relayer must be stopped."""
    from millrace.relayer.journal import backup as copies
    from millrace.relayer.journal import claims

    settings = _settings(config, pairs)
    folder = Path(settings.data_dir)
    with _shown(copies.BackupError, claims.ClaimsError), copies.stopped(folder):
        count = claims.import_(folder, file, settings.network().chain_id, settings.mark_path)
    say(f"claims of {count} senders hold in {folder}, too")


@click.command("export-open")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_with_settings
def export_open(file: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Write what was accepted and is still to be sent, a body of POST /v1/broadcast on each line; the relayer must be
    stopped."""
    from millrace.relayer.journal import carry
    from millrace.relayer.rules.policy import PolicyError
    from millrace.relayer.rules.policy_file import PolicyFile

    settings = _settings(config, pairs)
    rules = PolicyFile(settings.policy_file)  # not the last good one, which stays behind in the folder
    with _shown(PolicyError):
        rules.begin()

    async def export(journal: Journal, _: str) -> int:
        return carry.export(journal, file, rules.policy.paused_shards)

    count = _with_journal(settings, export)
    click.echo(f"{count} transactions that are still to be sent are in {file}")


@click.command()
@click.option("--before", type=click.DateTime(["%Y-%m-%d"]), required=True, help="Day (UTC) from which on lines stay.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_with_settings
def archive(before: datetime, file: Path, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Put old lines of the audit log into a new file; the relayer must be stopped."""
    from millrace.relayer.journal import archive as archives

    before_ms = int(before.replace(tzinfo=UTC).timestamp() * 1000)
    count = _with_journal(
        _settings(config, pairs), lambda journal, id_: archives.archive(journal, id_, before_ms, file)
    )
    say(f"{count} lines are in {file}; keep it, and the files before it")


@click.command("verify-archive")
@click.argument("files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True)
@_with_settings
def verify_archive(files: tuple[Path, ...], config: Path | None, pairs: tuple[str, ...]) -> None:
    """Check all archived files, oldest first, against the journal; the relayer must be stopped."""
    from millrace.relayer.journal import archive as archives

    async def verify(journal: Journal, id_: str) -> int:
        return archives.verify(journal, id_, files)

    count = _with_journal(_settings(config, pairs), verify)
    say(f"{count} lines are as they were written, none is missing")


def _with_journal(settings: RelayerSettings, work: Callable[[Journal, str], Coroutine[Any, Any, int]]) -> int:
    """What is done with a folder's journal, as its relayer opens it, and the folder's id."""
    from millrace.relayer.journal import archive as archives
    from millrace.relayer.journal import carry, identity
    from millrace.relayer.journal.journal import Journal
    from millrace.relayer.journal.writer import JournalError

    async def run() -> int:
        folder = Path(settings.data_dir)
        ours = identity.read(folder)
        identity.check_may_start(folder, ours)
        journal = Journal(folder / identity.JOURNAL, settings.mark_path)
        try:
            journal.open()
            return await work(journal, ours.id)
        finally:
            await journal.close()

    with _shown(identity.IdentityError, JournalError, archives.ArchiveError, carry.CarryError):
        return asyncio.run(run())


VERBS: tuple[click.Command, ...] = (
    init, backup, restore, move, recover, export_claims, import_claims, export_open, archive, verify_archive,
)  # fmt: skip
