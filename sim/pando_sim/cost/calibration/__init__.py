"""Measures a running worker from outside, and fits a cost model to what its clients see."""
