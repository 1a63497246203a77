"""What can go wrong in a demo."""


class DemoError(Exception):
    """A request of the demo failed."""
