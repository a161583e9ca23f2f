"""`millrace relayer VERB`: what operators do with a data directory. Each imports what it needs only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from millrace.runtime.settings import SettingsError, load, parse_overrides

if TYPE_CHECKING:
    from millrace.relayer.settings import RelayerSettings


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


@click.command()
@_with_settings
def init(config: Path | None, pairs: tuple[str, ...]) -> None:
    """Make the data directory, or adopt one of an earlier version."""
    from millrace.relayer.journal import identity

    folder = Path(_settings(config, pairs).data_dir)
    adopted = (folder / identity.JOURNAL).exists()
    try:
        made = identity.make(folder)
    except identity.IdentityError as error:
        raise click.ClickException(str(error)) from error
    if adopted:
        click.echo(f"{folder} is of an earlier version and has an identity from now on. What its journal says is kept.")
        click.echo("Go on only if it is the folder that was used last with its keys: what another one signed is not")
        click.echo("known here (then: `millrace relayer recover`).")
    else:
        click.echo(f"{folder} is made. Keep it: what is in it is what keeps a nonce from being signed twice.")
    click.echo(f"identity {made.id}, epoch {made.epoch}")


VERBS: tuple[click.Command, ...] = (init,)
