"""Which files of `lua/` each call's script is made of."""

from pando_fleet.redis.layout import calls

SCRIPTS: dict[type, tuple[str, ...]] = {
    calls.Beat: (
        "redis/clock",
        "placement/tree_ops",
        "redis/memory_ops",
        "records/mark_ops",
        "registry/terms",
        "registry/adapter_places",
        "registry/replica_ops",
        "registry/beat",
    ),
    calls.Announce: ("redis/clock", "registry/announce"),
    calls.ListPools: ("redis/clock", "registry/pools_list"),
    calls.ForgetPool: ("redis/clock", "placement/lease_ops", "registry/pool_forget"),
    calls.ForgetNames: ("registry/pools_forget",),
    calls.CheckWrites: ("redis/check_writes",),
    calls.Leave: ("registry/terms", "registry/adapter_places", "registry/leave"),
    calls.Replicas: (
        "redis/clock",
        "records/mark_ops",
        "registry/terms",
        "registry/adapter_places",
        "registry/replica_ops",
        "registry/replicas",
    ),
    calls.Place: (
        "redis/clock",
        "placement/tree_ops",
        "placement/lease_ops",
        "registry/terms",
        "placement/fleet_ops",
        "placement/adapter_ops",
        "placement/session_ops",
        "placement/place",
    ),
    calls.Settle: (
        "redis/clock",
        "placement/tree_ops",
        "redis/memory_ops",
        "placement/lease_ops",
        "placement/settle",
    ),
    calls.BeatRouter: ("redis/clock", "placement/lease_ops", "placement/router_beat"),
    calls.Reap: ("redis/clock", "placement/lease_ops", "placement/router_reap"),
    calls.ReadLoads: ("redis/clock", "placement/lease_ops", "records/loads_read"),
    calls.TouchTree: ("redis/clock", "placement/tree_ops", "placement/tree_touch"),
    calls.MatchTree: ("placement/tree_ops", "placement/tree_match"),
    calls.CutTree: ("placement/tree_ops", "placement/tree_cut"),
    calls.WeighTree: ("redis/clock", "placement/tree_ops", "placement/tree_worth"),
    calls.SetMark: ("redis/clock", "records/mark_ops", "records/mark_set"),
    calls.ClaimMark: ("redis/clock", "records/mark_ops", "records/mark_claim"),
    calls.ReportMark: ("redis/clock", "records/mark_ops", "records/mark_report"),
    calls.ListMarks: ("redis/clock", "records/mark_ops", "records/mark_list"),
    calls.ReportQueue: ("redis/clock", "records/queue_ops", "records/queue_report"),
    calls.ReadQueues: ("redis/clock", "records/queue_read"),
    calls.Agree: ("registry/upstream_agree",),
    calls.Ended: ("registry/upstream_ended",),
    calls.RememberHome: ("redis/clock", "records/remember_home"),
    calls.TakeLimit: ("redis/clock", "records/limit_ops", "records/limit_take"),
    calls.SettleLimit: ("redis/clock", "records/limit_ops", "records/limit_settle"),
}
"""The Lua files that are joined into each call's script: libraries of local functions first."""

ON_DEMAND: dict[str, tuple[str, ...]] = {
    "placement/adapter_ops": (),
    "placement/session_ops": ("placement/session_rows", "placement/working_set"),
}
"""Libraries that few calls of their script need, with the libraries that only they use: each is a
function of its name, which returns what others call of it. Redis runs a script from its first line
at each call, so the functions of any other library are made anew each time."""
