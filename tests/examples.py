"""How many examples Hypothesis tries: a share of what a property names, or several times as many.

`make test` tries a few of each, the same ones in each run: whether a change passes is not a matter
of luck. `make test-search` looks for new failures, with many examples and other ones each time;
what it finds becomes an `@example`.
"""

from hypothesis import HealthCheck, Phase, settings

QUICK, SEARCH = "quick", "search"
VERY_MANY = 500
MANY = 100
FEW = 25
LEAST = 5

# A busy machine is slow at whatever it does: that says nothing about what is tested.
settings.register_profile(
    QUICK,
    max_examples=FEW,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.register_profile(
    SEARCH, parent=settings.get_profile(QUICK), max_examples=VERY_MANY, derandomize=False
)
settings.register_profile(
    # The first failure is enough to notice a mutant.
    "mutants",
    parent=settings.get_profile(QUICK),
    max_examples=MANY,
    phases=(Phase.explicit, Phase.generate),
)


def examples(full: int) -> int:
    """For `max_examples` of a property that names its own number, `full`."""
    profile = settings.get_profile(settings.get_current_profile_name())
    return max(min(LEAST, full), full * profile.max_examples // MANY)
