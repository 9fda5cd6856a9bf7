"""What every oracle is told, and the double loop that every oracle is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Setting:
    """Sizes, lengths in tokens, and the options given to the scheme.

    L is the training length, n the length that is evaluated (L unless said).
    """

    D: int
    H: int
    K: int
    L: int
    n: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return self.L if self.n is None else self.n

    def option(self, name: str, default: object) -> object:
        return self.options.get(name, default)


def masked(
    H: int, q_pos: np.ndarray, k_pos: np.ndarray, logit: Callable[[int, int, int], float]
) -> np.ndarray:
    """logit(h, i, j) where key j is not in the future of query i, else −inf: [H, T, S]."""
    out = np.full((H, len(q_pos), len(k_pos)), -np.inf)
    for h in range(H):
        for i in range(len(q_pos)):
            for j in range(len(k_pos)):
                if k_pos[j] <= q_pos[i]:
                    out[h, i, j] = logit(h, i, j)
    return out


def score(q: np.ndarray, k: np.ndarray, h: int, i: int, j: int) -> float:
    """q_i · k_j / √K for one head."""
    return float(q[i, h] @ k[j, h]) / math.sqrt(q.shape[-1])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the keys, with minus infinity giving exactly zero: [H, T, S]."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
