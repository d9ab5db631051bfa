"""bisaddle completion: what a shell needs to complete commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
    bash:  eval "$(bisaddle completion bash)"       in ~/.bashrc
    zsh:   eval "$(bisaddle completion zsh)"        in ~/.zshrc
    fish:  bisaddle completion fish > ~/.config/fish/completions/bisaddle.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "bisaddle", "_BISADDLE_COMPLETE")
    # click asks the installed bash for its version before it gives the script; the text needs no bash
    click.echo(script.source_template % script.source_vars())
