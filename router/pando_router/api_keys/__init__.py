"""The file of API keys, and the permissions and limits of each tenant.

key_file.py   reads and checks the file
keyring.py    finds the tenant of a key
tenant.py     what the operator grants a tenant

`tenants/` applies them: limits, namespaces, forwarded headers.
"""
