"""`coordinates`: a candidate as a point, for guesses from other points."""

from pando_sim.tuning.space import Space, Values


def coordinates(space: Space, values: Values) -> list[float]:
    """Each from 0 to 1; a knob that is off has the middle of its range, and says so in a second."""
    found: list[float] = []
    for knob in space.knobs:
        value = values[knob.path]
        if knob.choices:
            found += [float(value == one) for one in knob.choices]
            continue
        if knob.may_be_off:
            found.append(float(value is not None))
        found.append(0.5 if value is None else knob.place(float(value)))
    return found
