"""What a fleet does when agents' sessions need more memory than it has.

Run: python -m bench.simulator.agent_sessions. Each rule is simulated with each number of sessions
at once (`docs/agents.md`). pauses.py plays nothing: it says what an answer's end would be worth.
"""
