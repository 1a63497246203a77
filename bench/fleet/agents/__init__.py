"""Agents' sessions on a real fleet that has too little KV memory for all, without and with the
bound on sessions.

    agent.py     one scripted agent: its calls, tools and pauses, by OpenAI's client
    crowd.py     many of them at once for a time, and what they saw
    __main__.py  a fleet for each rule, one after the other, and the table

Run on a quiet machine: python -m bench.fleet.agents
"""
