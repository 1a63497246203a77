"""How replicas come and go without a cut stream: pure, from what is seen to what is to be done.

Read in this order:
    plan.py       the steps, in their order, and all that is to be done now
    pods.py       what is known of a pod
    world.py      what one plan looks at
    choice.py     which pods leave
    departing.py  how one leaves, or is given back
    joining.py    how one joins: warmed, then through its gate
    rollout.py    who is of an old template
    actions.py    what a plan asks for
    census.py     how many replicas there are, by what they do

Imports `resource` and the fleet's marks; the controller carries its actions out.
"""
