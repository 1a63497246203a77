"""Matrices of 4-bit floats (e2m1) that stay so in memory: mxfp4 of OCP Microscaling Formats 1.0."""

from dataclasses import dataclass

from torch import Tensor

RUN = 32  # numbers of a row with one scale


@dataclass(frozen=True, slots=True, eq=False)
class Mxfp4Matrix:
    """Matrices of some experts.

    Attributes:
        values: uint8 [experts, outputs, inputs / 2]; of two numbers the first is in the low bits
        scales: uint8 [experts, outputs, inputs / RUN]; exponents of two, plus 127
    """

    values: Tensor
    scales: Tensor
