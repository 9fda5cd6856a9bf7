"""Independent transcriptions of every position scheme: float64 numpy, one pair at a time.

Slow on purpose, and nothing in them is taken from `posenc`: where the two disagree, one is wrong.
"""

import math
from collections.abc import Mapping

import numpy as np

from .content import CONTENTS, shaw_value
from .distance import BIASES, alibi, bias_logits
from .embedding import EMBEDDINGS
from .rotary import FREQUENCIES, rotary_logits, temperature
from .setting import Setting, masked, score, softmax

Array = np.ndarray

__all__ = ["EMBEDDINGS", "FREQUENCIES", "Setting", "attend", "embed", "logits", "temperature"]


def log_n(s: Setting, p: int) -> float:
    """What the query at position p is multiplied by."""
    scale = math.log(p + 1) / math.log(s.L)
    return max(1.0, scale) if s.option("clip", True) else scale


def logits(
    name: str,
    s: Setting,
    parameters: Mapping[str, Array],
    q: Array,
    k: Array,
    q_pos: Array,
    k_pos: Array,
) -> Array:
    """Masked logits [H, T, S] from raw q [T, H, K] and k [S, H, K].

    `name` may be a composition with log_n.
    """
    if name == "alibi+log_n":
        bias = alibi(s, parameters)
        return masked(
            s.H,
            q_pos,
            k_pos,
            lambda h, i, j: (
                log_n(s, q_pos[i]) * score(q, k, h, i, j) + bias(h, int(q_pos[i]), int(k_pos[j]))
            ),
        )
    if name.endswith("+log_n"):
        inner = logits(name.removesuffix("+log_n"), s, parameters, q, k, q_pos, k_pos)
        visible = np.isfinite(inner)  # a factor of zero does not unmask
        scaled = np.where(visible, inner, 0.0) * np.array([log_n(s, p) for p in q_pos])[:, None]
        return np.where(visible, scaled, -np.inf)
    if name in FREQUENCIES:
        return rotary_logits(name, s, q, k, q_pos, k_pos)
    if name in BIASES:
        return bias_logits(name, s, parameters, q, k, q_pos, k_pos)
    if name in CONTENTS:
        return CONTENTS[name](s, parameters, q, k, q_pos, k_pos)
    if name == "log_n":
        return logits("nope+log_n", s, parameters, q, k, q_pos, k_pos)
    if name == "nope" or name in EMBEDDINGS:
        return masked(s.H, q_pos, k_pos, lambda h, i, j: score(q, k, h, i, j))
    raise KeyError(name)


def attend(
    name: str,
    s: Setting,
    parameters: Mapping[str, Array],
    q: Array,
    k: Array,
    v: Array,
    q_pos: Array,
    k_pos: Array,
) -> Array:
    """Attention output [T, H, K] from raw q [T, H, K], k and v [S, H, K]."""
    w = softmax(logits(name, s, parameters, q, k, q_pos, k_pos))
    out = np.einsum("hts,shk->thk", w, v)
    if name == "shaw" and s.option("values", True):
        out = out + shaw_value(s, parameters, w, q_pos, k_pos)
    return out


def embed(name: str, s: Setting, parameters: Mapping[str, Array], x: Array, pos: Array) -> Array:
    """What the blocks get, [T, D]."""
    return EMBEDDINGS[name](s, parameters, x, pos) if name in EMBEDDINGS else np.array(x)
