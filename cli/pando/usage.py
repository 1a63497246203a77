"""What a wrong command line is answered with: one line with what was wrong and what to do."""

import difflib
from collections.abc import Iterable

import click

_ALIKE = 0.7  # of 1; at 0.6 --max-model-len is taken for --max-body-values


class Group(click.Group):
    """A group that answers an unknown command with the nearest one, and with all that there are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            raise click.UsageError(
                f"there is no command {name}{did_you_mean(name, known)}"
                f" The commands are {', '.join(known)}",
                ctx,
            )
        return super().resolve_command(ctx, args)


class StrictCommand(click.Command):
    """A command whose errors all begin with its name, and which says what to do with a word that
    belongs to no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if left:
            word, flags = left[0], [flag for one in self.params for flag in one.opts]
            meant = f": did you mean --model {word}?" if "--model" in flags else ""
            raise click.UsageError(f"{word} belongs to no option{meant or '.'}", ctx)
        return left


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
    close = closest(name, known)
    return f"; did you mean {close}{whose}?" if close else "."


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of the names that this may be a slip of."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=_ALIKE)), None)
