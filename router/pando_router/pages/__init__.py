"""What the router's pages for people have in common.

    document.py  makes one document of a page's files, with the policy that it is served with

`shared/` has the style sheet and scripts of every page: requests and the API key (`api.js`,
`key_form.js`), numbers and elements (`format.js`), and a placement in words (`explanation.js`).

Imports nothing of the router; `dashboard/` and `chat/` import it.
"""
