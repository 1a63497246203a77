"""Pando as pip installs it. The distribution has another name than the command and the packages:
on the Python package index `pando` is somebody else's."""

from importlib.metadata import PackageNotFoundError, metadata

DISTRIBUTION = "pando-serve"


def version() -> str:
    """Raises PackageNotFoundError if Pando runs from files that pip did not install."""
    return metadata(DISTRIBUTION)["Version"]


def installed_version() -> str | None:
    """None if Pando runs from files that pip did not install."""
    try:
        return version()
    except PackageNotFoundError:
        return None


def how_to_install(extra: str) -> str:
    """An advice that ends a sentence."""
    return f"run pip install '.[{extra}]' in Pando's folder"
