"""`pando keys`: new API keys for the file that a router's `api_keys` names."""

import click

from pando.usage import Group, StrictCommand


def keys_group() -> Group:
    group = Group("keys", help="Make API keys for routers.")
    group.add_command(StrictCommand("new", callback=_new, params=[_TENANT], help=_NEW))
    return group


_TENANT = click.Option(["--tenant"], required=True, metavar="NAME", help="tenant that owns the key")

_NEW = """Make a key: the key goes to standard error, its entry for the key file to standard output.

The key is not stored: the key file, which the router's --api-keys names, has only its SHA-256. A
tenant may have several keys."""


def _new(tenant: str) -> None:
    from pando_router.api_keys.key_file import is_name
    from pando_router.api_keys.keyring import digest_of, new_key

    if not is_name(tenant):
        raise click.UsageError(
            f"--tenant is {tenant!r}: a name has at most 64 letters, digits, dots, hyphens and"
            " underscores"
        )
    key = new_key()
    # To another stream, so that output appended to a file contains no key.
    click.echo(f"The key, shown only once: {key}", err=True)
    click.echo(f"tenants:\n  {tenant}:\n    keys:\n      - sha256: {digest_of(key)}")
