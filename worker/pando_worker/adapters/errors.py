"""Why an adapter cannot be used."""

_MOST_CHARACTERS = 1000  # files may have names of any length


class AdapterError(Exception):
    """This adapter cannot be used with this model. The message says what was found and what would
    be right."""

    def __init__(self, message: str) -> None:
        is_long = len(message) > _MOST_CHARACTERS
        super().__init__(f"{message[:_MOST_CHARACTERS]}..." if is_long else message)
