"""Schemes that add a bias made from the distance r = i − j, after the 1/√K scaling."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from .setting import Setting, masked, score

Array = np.ndarray
Bias = Callable[[int, int, int], float]  # (head, query position, key position) -> logit units


def alibi_slopes(H: int) -> list[float]:
    """2^(−8(h+1)/H), and for other head counts the reference's mixture of two powers of two."""
    if H & (H - 1) == 0:
        return [2.0 ** (-8.0 * (h + 1) / H) for h in range(H)]
    below = 1
    while 2 * below <= H:
        below *= 2
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][: H - below]


def alibi(s: Setting, parameters: Mapping[str, Array]) -> Bias:
    slopes, scale = alibi_slopes(s.H), float(s.option("slope_scale", 1.0))
    return lambda h, i, j: -scale * slopes[h] * (i - j)


def t5_bucket(r: int, num_buckets: int = 32, max_distance: int = 128) -> int:
    """Causal bucket of distance r: exact below num_buckets / 2, logarithmic up to max_distance."""
    n, exact = max(r, 0), num_buckets // 2
    if n < exact:
        return n
    grown = math.log(n / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    return min(exact + math.floor(grown + 1e-9), num_buckets - 1)


def t5(s: Setting, parameters: Mapping[str, Array]) -> Bias:
    num_buckets, far = s.option("num_buckets", 32), s.option("max_distance", 128)
    return lambda h, i, j: parameters["table"][t5_bucket(i - j, num_buckets, far), h]


def kerple(s: Setting, parameters: Mapping[str, Array]) -> Bias:
    p, a = parameters["p"], parameters["a"]
    if s.option("kind", "log") == "log":
        return lambda h, i, j: -p[h] * math.log(1.0 + a[h] * (i - j))
    return lambda h, i, j: -a[h] * float(i - j) ** p[h] if i > j else 0.0


def sandwich_sum(r: int, width: int = 128, first: int = 1) -> float:
    """Inner product of the sinusoidal vectors of two positions r apart, from term `first` on."""
    return sum(math.cos(r / 10000.0 ** (2.0 * t / width)) for t in range(first, first + width // 2))


def sandwich(s: Setting, parameters: Mapping[str, Array]) -> Bias:
    width = s.option("width", 128)
    return lambda h, i, j: (sandwich_sum(i - j, width) - width / 2) / (8.0 * (h + 1) / s.H)


def fire(s: Setting, parameters: Mapping[str, Array]) -> Bias:
    """MLP(ψ(i−j) / (ψ(max(i, threshold)) + 1e-6)), ψ(x) = ln(|c x| + 1)."""
    c, multiplier = float(parameters["c"]), float(parameters["L_mult"])
    threshold = abs(multiplier * float(s.option("init_length", s.L)))

    def psi(x: float) -> float:
        return math.log(abs(c * x) + 1.0)

    def bias(h: int, i: int, j: int) -> float:
        x = psi(i - j) / (psi(max(i, threshold)) + 1e-6)
        hidden = np.maximum(x * parameters["w1"] + parameters["b1"], 0.0)
        return float(hidden @ parameters["w2"][:, h] + parameters["b2"][h])

    return bias


BIASES = {"alibi": alibi, "t5": t5, "kerple": kerple, "sandwich": sandwich, "fire": fire}


def bias_logits(
    name: str,
    s: Setting,
    parameters: Mapping[str, Array],
    q: Array,
    k: Array,
    q_pos: Array,
    k_pos: Array,
) -> Array:
    """Masked logits [H, T, S]: q·k/√K, then the bias as it is."""
    bias = BIASES[name](s, parameters)

    def logit(h: int, i: int, j: int) -> float:
        return score(q, k, h, i, j) + bias(h, int(q_pos[i]), int(k_pos[j]))

    return masked(s.H, q_pos, k_pos, logit)
