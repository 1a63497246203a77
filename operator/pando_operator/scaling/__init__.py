"""How many replicas a pool is to have: `decide(snapshot, policy, now_s)`, pure and in plain words.

    snapshot = Snapshot(current=3, ready=3, signals=signals, start_s=42.0, history=history)
    decision = decide(snapshot, policy, now_s=time.time())
    history = decision.history
    if decision.desired != decision.current:
        ...  # carry it out, and remember that:
        history = history.scaled(now_s, decision.current, decision.desired, decision.by)

There is no I/O and no clock in here; a simulation calls the same. A policy that is only looked at
has a history of its own, without `scaled`.
"""
