"""The `millrace` command. A verb's module is imported when the verb is used: starting stays fast."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click


class _Verb(NamedTuple):
    """Where a command is (`module:attribute`, or a service of `services`), a line on what it does, and its extra."""

    home: str
    summary: str
    extra: str = ""


_SERVICES = {
    "aggregator": ("Answer swap quotes over REST.", "aggregator"),
    "relayer": ("Co-sign and broadcast transactions; stream their fate.", "relayer"),
    "notifier": ("Take block events from nodes, deliver them to consumers.", "notifier"),
    "pools": ("Collect the pools of all exchanges; list them.", "aggregator"),
    "localnet": ("Run a chain in a box, for development and tests.", "localnet"),
    "console": ("Serve a page to swap on and to watch the services.", "console"),
}
_SECTIONS: dict[str, dict[str, _Verb]] = {
    "Try it": {
        "demo": _Verb("system:demo", "Two swaps through everything, on this machine.", "localnet"),
        "up": _Verb("system:up", "The same system, kept running until Ctrl-C.", "localnet"),
    },
    "Trade and look": {
        "quote": _Verb("quote:quote", "The best swap between two tokens, with its route."),
        "swap": _Verb("swap:swap", "Make a swap; the relayer pays the gas."),
        "watch": _Verb("watch:watch", "Gas, network, an account or a transaction, live."),
        "tokens": _Verb("market:tokens", "Tokens that can be traded, with prices."),
        "keys": _Verb("keys:keys", "Make, show and check wallets."),
    },
    "Run services": {name: _Verb(f"services:{name}", text, extra) for name, (text, extra) in _SERVICES.items()},
    "Operate": {
        "doctor": _Verb("doctor:doctor", "What is wrong, and what to do about it.", "relayer"),
        "ledger": _Verb("ledger:ledger", "Budgets of the relayer, and what is at risk for whom."),
        "policy": _Verb("policy:policy", "What the relayer pays for: look at it, change it.", "relayer"),
        "config": _Verb("config:config", "Every setting: value, source, type and meaning."),
        "completion": _Verb("completion:completion", "Completion for bash, zsh and fish."),
    },
}
_VERBS = {name: verb for section in _SECTIONS.values() for name, verb in section.items()}


class _Verbs(click.Group):
    """Commands by name, each imported when it is needed; the help needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = _VERBS.get(cmd_name)
        if verb is None:
            return None
        module, _, attribute = verb.home.partition(":")
        home = importlib.import_module(f"millrace.cli.{module}")
        make = home.service_command if module == "services" else None
        found = make(cmd_name, verb.summary, verb.extra) if make else getattr(home, attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _VERBS, 1)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        from millrace.runtime.terminal import accept_locale

        accept_locale()
        try:
            return super().invoke(ctx)
        except ImportError as error:
            found = _how_to_install(ctx.invoked_subcommand or "", error)
            if not isinstance(found, click.ClickException):
                raise
            _tell(found)
            ctx.exit(found.exit_code)
        except click.ClickException as error:
            _tell(error)
            ctx.exit(error.exit_code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, _VERBS))
        for title, verbs in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), verb.summary) for name, verb in verbs.items()])


def _tell(error: click.ClickException) -> None:
    """What click says of an error, in lines that fit the terminal."""
    import io

    from millrace.runtime.terminal import say

    told = io.StringIO()
    error.show(told)
    say(told.getvalue().rstrip("\n"), err=True)


def _how_to_install(name: str, error: ImportError) -> Exception:
    """A line that says what to install where what a verb lacks is of an extra; else the error itself."""
    from millrace.runtime import extras

    if isinstance(error, extras.ExtraMissing):
        return click.ClickException(str(error))
    verb = _VERBS.get(name)
    if not isinstance(error, ModuleNotFoundError):  # it is there, and broken or of another version: its own words help
        return error
    if verb is None or not verb.extra or not extras.brings(verb.extra, error.name):
        return error
    return click.ClickException(
        f"millrace {name} needs {error.name}, which is not installed: {extras.remedy(verb.extra)}"
    )


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millrace")
def main() -> None:
    """Swap routing, sponsored relaying and event delivery for the MultiversX chain.

    \b
    Exit codes: 0 done; 1 refused, failed or not found; 2 wrong use;
    3 a service cannot be reached; 4 what became of it is not known.
    """
