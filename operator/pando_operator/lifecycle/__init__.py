"""Plans how replicas join and leave without cutting a stream; pure.

Read in this order:
    plan.py        the steps in their order, and all actions that are due now
    pods.py        what the lifecycle knows of a pod
    pool_state.py  the pods and marks that one plan is based on
    choice.py      chooses the pods that leave
    departing.py   how a pod leaves, or is given back
    joining.py     how a pod joins: it is warmed, then its gate opens
    moving.py      moves an only replica from a node that is being emptied
    rollout.py     which pods have an old template
    actions.py     the actions of a plan
    census.py      counts replicas by state

Imports `resource` and the fleet's marks; the controller carries out the actions.
"""
