"""`pando demo`: the same conversations with two fleets, which choose replicas differently."""
