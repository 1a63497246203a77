"""The dashboard: one self-contained page, and the numbers that it draws.

`Sampler` reads the router's metrics each second into a bounded `History`; `routes` serves the page
and, to admins, the data. The numbers are this router's own (this process's, if several share the
port); all routers show the same fleet. `page/` has the page's own files; those that it shares with
other pages are in `pages/`.
"""
