"""Help in the order of use, under headings, and sentences that are broken between words."""

import shutil
import textwrap
from typing import Any

import click


class Ordered(click.Group):
    """A group whose commands are listed in the order in which they were added, under the headings of `sections`."""

    sections: dict[str, tuple[str, ...]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for title, names in (self.sections or {"Commands": tuple(self.commands)}).items():
            with formatter.section(title):
                shown = [(name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in names]
                formatter.write_dl(shown)


class Sectioned(click.Command):
    """A command whose options are listed under headings: sections has the first parameter of each by its title."""

    def __init__(self, *arguments: Any, sections: dict[str, str], **options: Any):
        super().__init__(*arguments, **options)
        self.titles = {first: title for title, first in sections.items()}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        title, listed = "Options", {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = self.titles.get(str(parameter.name), title)
                listed.setdefault(title, []).append(record)
        for title, records in listed.items():
            with formatter.section(title):
                formatter.write_dl(records)


def broken(text: str, stream: Any, begin: str = "") -> str:
    """Sentences in lines as wide as the terminal; as they are where the stream is none. A word is never cut."""
    if stream is None or not stream.isatty():
        return begin + text
    width = max(shutil.get_terminal_size().columns, 40)
    wrap = textwrap.TextWrapper(width, begin, " " * len(begin), break_long_words=False, break_on_hyphens=False)
    return "\n".join("\n".join(wrap.wrap(line)) for line in text.splitlines())
