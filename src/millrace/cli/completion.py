"""`millrace completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion for a shell.

    \b
    bash: millrace completion bash >> ~/.bash_completion
    zsh:  millrace completion zsh > "${fpath[1]}/_millrace"
    fish: millrace completion fish > ~/.config/fish/completions/millrace.fish
    """
    from click.shell_completion import get_completion_class

    from millrace.cli import main

    kind = get_completion_class(shell)
    assert kind is not None  # the choices above are those that click knows
    click.echo(kind(main, {}, "millrace", "_MILLRACE_COMPLETE").source())
