"""Whose request it is: the file of API keys, and what it says of each tenant.

key_file.py   reads and checks the file
keyring.py    finds the tenant of a key
tenant.py     what the operator grants a tenant

What is done with it (limits, name spaces, what is forwarded) lies in `tenants/`.
"""
