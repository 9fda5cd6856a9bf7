"""Schemes that add a vector to the token embeddings."""

import math
from collections.abc import Mapping

import numpy as np

from .setting import Setting

Array = np.ndarray


def sinusoidal(s: Setting, parameters: Mapping[str, Array], x: Array, pos: Array) -> Array:
    """PE(p)[2t] = sin(p b^(−2t/D)), PE(p)[2t+1] = cos of the same: [T, D]."""
    base, out = float(s.option("base", 10000.0)), np.array(x, np.float64)
    for i, p in enumerate(pos):
        for t in range(s.D // 2):
            angle = float(p) * base ** (-2.0 * t / s.D)
            out[i, 2 * t] += math.sin(angle)
            out[i, 2 * t + 1] += math.cos(angle)
    return out


def learned(s: Setting, parameters: Mapping[str, Array], x: Array, pos: Array) -> Array:
    """Row p of the table; interpolated, row p reads p · L / length, clamped to the last row."""
    table, out = parameters["table"], np.array(x, np.float64)
    interpolate = s.option("extend", None) == "interpolate" and s.length > s.L
    for i, p in enumerate(pos):
        place = min(p * s.L / s.length, s.L - 1) if interpolate else p
        below = math.floor(place)
        above = min(below + 1, s.L - 1)
        out[i] += table[below] * (1.0 - (place - below)) + table[above] * (place - below)
    return out


EMBEDDINGS = {"sinusoidal": sinusoidal, "learned": learned}
