"""Policies by which routers choose a replica: Pando's own, and models of other routers' policies,
so that all can be compared on the same trace, capacity and cost model.

Read in this order:
    simulated.py         a policy's entry in the registry
    pando.py             the router's own policies
    smg.py, llm_d.py, llm_d_lora.py, dynamo.py, production_stack.py, vllm.py    models of other
                         routers' policies
    llm_d_sessions.py, thunder_agent.py    models of those that hold agents' sessions back
    local.py             a policy that leases nothing
    sent.py, polled.py   what such a router remembers, and what it asks engines

Each router of a run has a policy of its own: what its original keeps in a router's memory (trees,
counts of requests) is kept once a router here too, and known to no other.

To add one, copy vllm.py and list it here; the settings, `--help` and docs/simulator.md have it from
here. A policy of the router is here by itself.

Imports fleet (`pando_sim.fleet`) and the router's policies.
"""

from pando_fleet.choices import by_name
from pando_sim.policies import pando
from pando_sim.policies.dynamo import DYNAMO
from pando_sim.policies.llm_d import LLM_D
from pando_sim.policies.llm_d_lora import LLM_D_LORA
from pando_sim.policies.llm_d_sessions import LLM_D_SESSIONS
from pando_sim.policies.production_stack import PRODUCTION_STACK
from pando_sim.policies.smg import SMG
from pando_sim.policies.thunder_agent import THUNDER_AGENT
from pando_sim.policies.vllm import VLLM

POLICIES = by_name(
    *pando.own(),
    SMG,
    LLM_D,
    LLM_D_LORA,
    DYNAMO,
    PRODUCTION_STACK,
    VLLM,
    LLM_D_SESSIONS,
    THUNDER_AGENT,
)
