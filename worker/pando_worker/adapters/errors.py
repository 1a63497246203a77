"""Why an adapter cannot be used."""


class AdapterError(Exception):
    """This adapter cannot be used with this model. The message says what was found and what would
    be right."""
