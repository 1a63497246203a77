"""A body with another model's name, and otherwise the bytes that the client sent."""

import msgspec

from pando_router.errors import bad_request

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def with_model(body: bytes, model: str) -> bytes:
    """`body`, a JSON object, with `model` as the value of its "model".

    Values stay as they are spelled, byte for byte, and in their order; of a name that is there
    twice the last value counts, as for every reader of JSON here. Only what stands between members
    is written anew. Raises ApiError 400 for what is no object.
    """
    try:
        members = _members(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise bad_request(f"the request body is not a JSON object: {error}") from error
    members["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(members)
