"""A stream whose replica is lost goes on at another one, and its client sees one stream.

`plan` decides from the request which streams may. `recording` keeps what the client got of them, as
bytes, and lets only whole events through. Nothing of those is parsed until a replica is lost: then
`events` and the endpoint's `form` read what was sent, `bodies` makes the request that asks for the
rest and `stream` fits the new replica's events to the old one's. `migrator` is all of it together,
as the proxy uses it.
"""
