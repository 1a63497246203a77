"""What a fleet does when agents' sessions need more memory than it has.

Run: python -m bench.simulator.agent_sessions. Each rule is simulated with each number of sessions
at once (`docs/agents.md`). pauses.py and evictions.py simulate no fleet: they say what an answer's
end would be worth, and another order of eviction.
"""
