"""The commands that run a service until it is told to stop, and the verbs of those that have some."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from millrace.cli.masked import MASK, masked
from millrace.runtime import extras
from millrace.runtime.settings import SettingsError, load, parse_overrides, struct_of
from millrace.runtime.terminal import say

# name -> (the module whose `run(settings, stop)` is the service, uses uvloop)
SERVICES = {
    "aggregator": ("millrace.aggregator.app", True),
    "relayer": ("millrace.relayer.app", True),
    "notifier": ("millrace.notifier.app", False),
    "pools": ("millrace.collector.app", True),
    "localnet": ("millrace.localnet.app", False),
    "console": ("millrace.console.app", False),
}


def _verbs_of(name: str) -> tuple[click.Command, ...]:
    """What else can be done with a service than to run it."""
    if name == "relayer":
        from millrace.relayer.commands import VERBS

        return VERBS
    if name == "pools":
        from millrace.cli.market import list_pools

        return (list_pools,)
    return ()


def service_command(name: str, summary: str, extra: str) -> click.Command:
    """The command of a service that `extra` brings."""
    app_module, uvloop = SERVICES[name]
    verbs = _verbs_of(name)
    make = click.group(name, help=summary, invoke_without_command=True) if verbs else click.command(name, help=summary)

    @make
    @click.option("--config", type=click.Path(path_type=Path), help="TOML file with the settings.")
    @click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One setting; repeatable.")
    @click.option("--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]))
    @click.option("--log-format", default="json", type=click.Choice(["json", "text"]))
    @click.option("--show-settings", is_flag=True, help="Print the settings that would hold, and end.")
    @click.option("--parent", type=int, hidden=True, help="End when the process with this id ends.")
    def command(
        config: Path | None,
        pairs: tuple[str, ...],
        log_level: str,
        log_format: str,
        show_settings: bool,
        parent: int | None,
    ) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is not None:
            from millrace.relayer.commands import Given

            context.obj = Given(config, pairs)
            return
        from millrace.runtime import logs, process

        if parent is not None:
            process.die_with_parent(parent)
        with process.loading():
            kind = struct_of(name)
        try:
            settings = load(name, kind, file=config, overrides=parse_overrides(pairs))
        except SettingsError as error:
            raise click.ClickException(str(error)) from error
        if show_settings:
            for field in kind.__struct_fields__:
                value = masked(field, getattr(settings, field))
                say(f"{field} = {value if value == MASK else repr(value)}", indent=4)
            return
        extras.require(extra, f"millrace {name}")
        logs.configure(name, log_level, json=log_format == "json")
        with process.loading():
            run: Callable[[Any, asyncio.Event], Awaitable[None]] = importlib.import_module(app_module).run
        try:
            process.run_service(lambda stop: run(settings, stop), uvloop=uvloop)
        except OSError as error:
            raise click.ClickException(f"{name} cannot run: {error}") from error

    if isinstance(command, click.Group):
        for verb in verbs:
            command.add_command(verb)
    return command
