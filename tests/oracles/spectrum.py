"""Frequencies and temperature of the RoPE family, from scheme or oracle by one call."""

from collections.abc import Callable

import numpy as np
from flax import nnx

import posenc

from . import FREQUENCIES, Setting, temperature

SOURCES = ("scheme", "oracle")


def scheme_of(
    spec: str, K: int, L: int, n: int | None = None, H: int = 1, D: int = 8, **options: object
) -> posenc.Scheme:
    dims = posenc.Dims(D=D, H=H, K=K, train_length=L)
    scheme = posenc.create(spec, dims, nnx.Rngs(0), **options)
    return scheme if n is None else scheme.at_length(n)


def family_of(source: str) -> Callable[..., tuple[np.ndarray, float]]:
    """(spec, K, L, n=None, **options) -> inverse frequencies [rotated/2], attention factor."""

    def of(spec, K, L, n=None, **options):
        if source == "scheme":
            scheme = scheme_of(spec, K, L, n, **options)
            return scheme.inverse_frequencies(), scheme.attention_factor
        s = Setting(D=8, H=1, K=K, L=L, n=n, options=options)
        return np.array(FREQUENCIES[spec](s)), temperature(spec, s)

    return of


def ratio(family: Callable, spec: str, K: int, L: int, n: int | None = None, **options: object):
    """Frequencies over those of plain RoPE, [rotated/2]."""
    base = {"base": options["base"]} if "base" in options else {}
    return family(spec, K, L, n, **options)[0] / family("rope", K, L, **base)[0]
