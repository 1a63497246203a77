"""The browser of the tests of pages."""

from tests.router.control.browser import browser

__all__ = ["browser"]
