"""Fills the reference while the site is built: every command and every public name, as they are."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    if "<!-- every command -->" in markdown:
        markdown = markdown.replace("<!-- every command -->", commands())
    if "<!-- every name -->" in markdown:
        markdown = markdown.replace("<!-- every name -->", names())
    return markdown


def commands() -> str:
    """A heading for each group, and for each command its help, options and examples."""
    import typer

    from residual_audio.cli.app import GROUPS, build

    root: Any = typer.main.get_command(build())
    parts = []
    for group, members in GROUPS.items():
        parts.append(f"## {group}\n")
        for name in members:
            parts += _command(root.commands[name], name)
    return "\n".join(parts)


def _command(command: Any, name: str) -> list[str]:
    from residual_audio.cli.examples import EXAMPLES

    about = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    parts = [f"### {name}\n", *(f"{part}\n" for part in about)]
    inner = getattr(command, "commands", {})
    examples = EXAMPLES.get(name, ())
    if examples:
        parts += ["```", *(f"residual-audio {line}" for line in examples), "```\n"]
    if not inner:
        parts += ["| | |", "| --- | --- |", *(_row(p) for p in command.params), ""]
    for sub, one in inner.items():
        if not one.hidden:
            parts += _command(one, f"{name} {sub}")
    return parts


def _row(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    shown = " ".join(f"`{name if name.startswith('-') else name.upper()}`" for name in names)
    about = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    return f"| {shown} | {about} |"


def names() -> str:
    """One block of mkdocstrings for each name of the package."""
    import residual_audio as ra

    blocks = []
    for name in dir(ra):
        if name in ra._WHERE:
            blocks.append(f"::: {ra._WHERE[name]}.{name}\n    options:\n      heading: ra.{name}\n")
    return "\n".join(blocks)
