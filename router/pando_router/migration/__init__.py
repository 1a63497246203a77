"""A stream whose replica is lost goes on at another one, and its client sees one stream.

`recording` keeps what the client got, as bytes, and lets only whole events through. Nothing is
parsed until a replica is lost: then `events` and `forms` read what was sent, `bodies` makes the
request that asks for the rest, and `splice` fits the new replica's events to the old one's.
`stream` is all of it together, as the proxy uses it.
"""
