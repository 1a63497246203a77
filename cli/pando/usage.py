"""What a wrong command line is answered with: one line with what was wrong and what to do."""

import difflib
from collections.abc import Iterable

import click


def line_of(error: click.ClickException) -> str:
    """The line, which begins with the command."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "pando"
    if isinstance(error, click.NoSuchOption):
        name, known = error.option_name, error.possibilities or ()
        return f"{where}: there is no option {name}{did_you_mean(name, known)} See {where} --help"
    message = error.format_message()
    if type(error) is not click.ClickException and message[1:2].islower():  # click's own sentence
        message = message[0].lower() + message[1:]
    return f"{where}: {message.removesuffix('.')}"


def did_you_mean(name: str, known: Iterable[str], whose: str = "") -> str:
    """The end of a sentence: a question with the nearest of the names, or a full stop."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}{whose}?" if close else "."
