"""OpenAI's responses: tools, instructions as a first message, then the items of the input."""

from pando_fleet.canonical.chat import add_message
from pando_fleet.canonical.images import add_image
from pando_fleet.canonical.marks import (
    EARLIER,
    FIELDS,
    MESSAGE,
    PrefixError,
    json_bytes,
    json_type,
    without,
)
from pando_fleet.canonical.parts import add_content
from pando_fleet.images.in_prefix import PrefixImage

_CONTENTS = ("summary", "content", "output")
# An item copied from an answer has an id and a state; one that a client wrote has none.
_BOOKKEEPING = frozenset(["id", "status", "type"])
_AROUND_CONTENTS = _BOOKKEEPING.union(_CONTENTS)


def responses_bytes(
    input: object,
    instructions: object = None,
    tools: bytes = b"",
    earlier: object = None,
    images: list[PrefixImage] | None = None,
) -> bytes:
    """Canonical bytes of a body of /v1/responses. If all its content is text, they equal those of
    the same conversation as a chat. `earlier` names what the server stores, such as a previous
    response, because the same input has another meaning after each. `images` gets what is known of
    the prompt's images.

    Raises PrefixError if `input` is not a string, null or a list of objects with a role or a type,
    or if contents have a wrong shape.
    """
    out: list[bytes] = []
    images = [] if images is None else images
    if earlier:
        out += (EARLIER, json_bytes(earlier))
    out.append(tools)
    if instructions:
        out += (MESSAGE, b"system")
        add_content(out, instructions, images, "instructions")
    if isinstance(input, str):
        out += (MESSAGE, b"user")
        add_content(out, input, images, "input")
    elif isinstance(input, list):
        for index, item in enumerate(input):
            _add_item(out, item, images, index)
    elif input is not None:
        raise PrefixError(f"input must be a string or a list of items, not {json_type(input)}")
    return b"".join(out)


def _add_item(out: list[bytes], item: object, images: list[PrefixImage], index: int) -> None:
    if not isinstance(item, dict):
        raise PrefixError(f"input[{index}] must be an object, not {json_type(item)}")
    if "role" in item:
        add_message(out, without(item, _BOOKKEEPING), images, "input", index)
        return
    kind = item.get("type")
    if not isinstance(kind, str):
        raise PrefixError(f"input[{index}] must have a role or a type")
    out += (MESSAGE, kind.encode())
    # A reference to an item consists of its name only.
    around = _CONTENTS if kind == "item_reference" else _AROUND_CONTENTS
    if said := without(item, frozenset(around)):
        out += (FIELDS, json_bytes(said))
    for name in _CONTENTS:
        content = item.get(name)
        if isinstance(content, dict):  # a screenshot
            add_image(out, images, content)
        else:
            add_content(out, content, images, f"input[{index}].{name}")
