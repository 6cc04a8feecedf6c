"""Groups of commands: whole sentences in their help, and one command that may go unnamed."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class Group(TyperGroup):
    """Lists commands under headings, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Under the panel that a command names; a line is wrapped, never cut."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            panel = command.rich_help_panel
            heading = panel if isinstance(panel, str) else "Commands"
            about = (command.short_help or command.help or "").split("\n\n")[0]
            sections.setdefault(heading, []).append((name, " ".join(about.split())))
        widest = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), about) for name, about in rows])


class DefaultGroup(Group):
    """What does not begin with the name of a command belongs to `default`.

    `probe RUN` is `probe measure RUN`.
    """

    default = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
