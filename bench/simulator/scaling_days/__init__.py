"""Compares scalers over a day: what each pays in replica-hours for requests in time.

Run: python -m bench.simulator.scaling_days --output DIR
    [--conversation mooncake_conversation.jsonl.gz]
"""
