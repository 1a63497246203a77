"""Feed-forward layers of which each token takes a few.

mixture.py  a router, and the experts that it chooses from
grouped.py  experts chosen by groups, beside shared ones
tensors.py  the forms of experts in checkpoints
"""
