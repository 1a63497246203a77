"""A click option for one setting."""

import click

from pando.settings.fields import REPEATED, Field


def option(field: Field, parameter: str, *, hidden: bool = False) -> click.Option:
    """Options pass plain strings on: only pydantic validates values, whatever their source."""
    default = f"default: {field.default}" if field.default else ""
    notes = "; ".join(filter(None, ["required" if field.required else default, field.limits]))
    text = f"{field.description} [{notes}]" if notes else field.description
    if field.is_switch:
        both = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
        return click.Option([both, parameter], is_flag=True, default=None, help=text, hidden=hidden)
    return click.Option(
        [field.flag, parameter],
        type=str,
        metavar=field.type.removesuffix(REPEATED),
        multiple=field.type.endswith(REPEATED),
        help=text,
        hidden=hidden,
    )
