"""The dashboard: one page without outside assets, and the numbers that it draws.

`Sampler` reads the router's metrics each second into a bounded `History`; `routes` serves the page
and, to admins, the data. It is this router's view (this process's, where several share the port),
of a fleet that all routers see alike. `page/` has the page's own files; those that it shares with
other pages are in `pages/`.
"""
