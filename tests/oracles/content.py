"""Positions that meet the query or the key: Shaw, Transformer-XL, XLNet, DeBERTa, CoPE."""

import math
from collections.abc import Mapping

import numpy as np

from .setting import Setting, masked, score

Array = np.ndarray
Parameters = Mapping[str, Array]


def shaw_index(i: int, j: int, C: int) -> int:
    return min(max(j - i, -C), C) + C


def shaw(s: Setting, parameters: Parameters, q: Array, k: Array, q_pos: Array, k_pos: Array):
    C, root = s.option("clip_distance", 16), math.sqrt(s.K)

    def logit(h: int, i: int, j: int) -> float:
        a = parameters["key_table"][shaw_index(int(q_pos[i]), int(k_pos[j]), C)]
        return float(q[i, h] @ (k[j, h] + a)) / root

    return masked(s.H, q_pos, k_pos, logit)


def shaw_value(s: Setting, parameters: Parameters, w: Array, q_pos: Array, k_pos: Array) -> Array:
    """Σ_j w_ij a^V_{clip(j−i)}: [T, H, K]."""
    C, out = s.option("clip_distance", 16), np.zeros((len(q_pos), s.H, s.K))
    for h in range(s.H):
        for i in range(len(q_pos)):
            for j in range(len(k_pos)):
                if k_pos[j] <= q_pos[i]:
                    row = shaw_index(int(q_pos[i]), int(k_pos[j]), C)
                    out[i, h] += w[h, i, j] * parameters["value_table"][row]
    return out


def transformer_xl(
    s: Setting, parameters: Parameters, q: Array, k: Array, q_pos: Array, k_pos: Array
):
    u, v, W_R, root = parameters["u"], parameters["v"], parameters["W_R"], math.sqrt(s.K)
    frequencies = [10000.0 ** (-2.0 * t / s.D) for t in range(s.D // 2)]

    def logit(h: int, i: int, j: int) -> float:
        r = float(q_pos[i]) - float(k_pos[j])
        R = [math.sin(r * f) for f in frequencies] + [math.cos(r * f) for f in frequencies]
        projected = np.array(R) @ W_R[:, h, :]
        return float((q[i, h] + u[h]) @ k[j, h] + (q[i, h] + v[h]) @ projected) / root

    return masked(s.H, q_pos, k_pos, logit)


def deberta_bucket(r: int, num_buckets: int, max_distance: int) -> int:
    """Signed log bucket: distances up to num_buckets / 2 as they are."""
    mid = num_buckets // 2
    if abs(r) <= mid:
        return r
    grown = math.log(abs(r) / mid) / math.log((max_distance - 1) / mid) * (mid - 1)
    return int(math.copysign(math.ceil(grown - 1e-9) + mid, r))


def deberta_row(r: int, num_buckets: int, max_distance: int) -> int:
    row = deberta_bucket(r, num_buckets, max_distance) + num_buckets
    return min(max(row, 0), 2 * num_buckets - 1)


def deberta(s: Setting, parameters: Parameters, q: Array, k: Array, q_pos: Array, k_pos: Array):
    B, M = s.option("num_buckets", 32), s.option("max_distance", 128)
    paper = s.option("p2c_index", "code") == "paper"
    table, root = parameters["table"], math.sqrt(3.0 * s.K)

    def logit(h: int, i: int, j: int) -> float:
        r = int(q_pos[i]) - int(k_pos[j])
        K_r = table[deberta_row(r, B, M)] @ parameters["key_projection"][:, h, :]
        reverse = table[deberta_row(-r if paper else r, B, M)]
        Q_r = reverse @ parameters["query_projection"][:, h, :]
        return float(q[i, h] @ k[j, h] + q[i, h] @ K_r + k[j, h] @ Q_r) / root

    return masked(s.H, q_pos, k_pos, logit)


def cope(s: Setting, parameters: Parameters, q: Array, k: Array, q_pos: Array, k_pos: Array):
    """A key's position is the sum of the gates from it to the query."""
    table, root = parameters["table"], math.sqrt(s.K)
    last = s.option("max_positions", 64) - 1

    def logit(h: int, i: int, j: int) -> float:
        p = 0.0
        for u in range(len(k_pos)):
            if k_pos[j] <= k_pos[u] <= q_pos[i]:
                p += 1.0 / (1.0 + math.exp(-score(q, k, h, i, u)))
        p = min(p, float(last))
        below, above = math.floor(p), math.ceil(p)
        z = (q[i, h] @ table[below]) * (1.0 - (p - below)) + (q[i, h] @ table[above]) * (p - below)
        return score(q, k, h, i, j) + float(z) / root

    return masked(s.H, q_pos, k_pos, logit)


CONTENTS = {
    "shaw": shaw,
    "transformer_xl": transformer_xl,
    "xlnet": transformer_xl,
    "deberta": deberta,
    "cope": cope,
}
