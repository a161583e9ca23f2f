"""The command as a whole: help that is enough in 80 columns, what is loaded when, and exit codes of wrong use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from millrace.cli import main
from millrace.system.plan import Plan, Ports
from millrace.system.up import places

COLUMNS = 80


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, (*path, name))


ALL = {" ".join(path) or "millrace": path for path, _ in _commands(main)}


@pytest.mark.parametrize("name", ALL)
def test_help_fits_a_terminal(name: str) -> None:
    """Every command has a help that says what it does, in at most 80 columns."""
    result = CliRunner().invoke(main, [*ALL[name], "--help"], prog_name="millrace", terminal_width=COLUMNS)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert lines[2].strip(), "the help says nothing of what the command does"


def test_every_address_can_come_from_the_environment() -> None:
    """An option with a service's usual address has a variable, which the page names and `millrace up` prints."""
    options = [option for _, command in _commands(main) for option in command.params]
    usual = {option for option in options if str(option.default).startswith(("http://", "ws://"))}
    assert [option.name for option in usual if not option.envvar] == []
    variables = {str(option.envvar) for option in options if str(option.envvar).endswith("_URL")}
    variables -= {"MILLRACE_GATEWAY_URL"}  # of the chain
    assert variables == set(places(Plan(Ports(), Path())))
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    assert [name for name in variables if f"`{name}`" not in page] == []


def test_a_typing_error() -> None:
    """A command that is nearly one is answered with the one that is meant, and exit code 2."""
    result = CliRunner().invoke(main, ["qoute"])
    assert result.exit_code == 2
    assert "Did you mean 'quote'?" in result.output


@pytest.mark.parametrize("verb", ["quote", "market", "ledger", "keys", "config", "completion"])
def test_verbs_load_little(verb: str) -> None:
    """A verb that asks one thing loads neither a service, nor the event loop's HTTP library, nor compilers."""
    script = f"import sys, millrace.cli, millrace.cli.{verb}; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert not loaded & {"aiohttp", "asyncio", "numba", "libp2p", "rich.table", "millrace.relayer.app"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The completion of each shell is printed, and asks the command for what fits."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert "_MILLRACE_COMPLETE" in result.output
