"""Continues a stream at another replica when its own is lost; the client sees one stream.

`plan` decides from the request whether its stream may migrate. `recording` keeps the bytes sent to
the client and sends only whole events. They are parsed only if the replica is lost: then `events`
and the endpoint's `form` read what was sent, `bodies` makes the request for the rest, and `stream`
fits the new replica's events to the old one's. `migrator` combines these for the proxy.
"""
