"""The permutation test: without positions, shuffling the tokens shuffles the outputs and nothing else."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import posenc

T = 12  # tokens
DIMS = posenc.Dims(D=16, H=2, K=8, train_length=T)
CAUSAL = "nope, causal"
# Options only where a scheme cannot be made without, or would do nothing at these sizes. (Not cope,
# whose table starts at 0 and does nothing before training.)
DRAWN = {
    "nope": {},
    CAUSAL: {},
    "sinusoidal": {},
    "learned": {},
    "rope": {},
    "xpos": {},
    "log_n": {"clip": False},
    "alibi": {},
    "t5": {},
    "kerple": {},
    "sandwich": {},
    "fire": {},
    "shaw": {},
    "transformer_xl": {},
    "deberta": {},
    "window": {"size": 4},
}


def attend(scheme: posenc.Scheme, x: jax.Array, causal: bool) -> jax.Array:
    """One layer of attention with fixed random weights over x [T, D], all hooks applied, [T, H·K].

    Not causal, unless asked: each token sees all others, so order enters by the scheme alone.
    """
    D, H, K = scheme.dims.D, scheme.dims.H, scheme.dims.K
    pos = scheme.positions(x.shape[0])
    weights = normal(1, 3, D, H, K) * np.float32(D**-0.5)
    q, k, v = jnp.einsum("td,wdhk->wthk", scheme.embed(x, pos), weights, precision="highest")
    seen = jnp.ones((len(pos), len(pos)), bool)
    if causal:
        seen = pos[None, :] <= pos[:, None]
    window = scheme.visible(pos, pos)
    seen = seen if window is None else seen & window
    queries, keys = scheme.query(q, pos), scheme.key(k, pos)
    logits = jnp.einsum("thk,shk->hts", queries, keys, precision="highest") * np.float32(K**-0.5)
    terms = (scheme.content(q, k, pos, pos, seen), scheme.bias(pos, pos))
    logits = sum((term for term in terms if term is not None), logits)
    w = jax.nn.softmax(jnp.where(seen[None], logits, -jnp.inf), axis=-1)
    out = jnp.einsum("hts,shk->thk", w, v, precision="highest")
    extra = scheme.value(w, pos, pos)
    return (out if extra is None else out + extra).reshape(len(pos), H * K)


@functools.cache
def shuffled_outputs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The outputs [T, H·K] of one drawn scheme, and those of the shuffled tokens put back in order."""
    scheme = posenc.create(name.split(",")[0], DIMS, nnx.Rngs(0), **DRAWN[name])
    tokens = normal(2, T, DIMS.D)
    order = np.random.default_rng(3).permutation(T)
    plain, shuffled = (
        attend(scheme, jnp.asarray(x), name == CAUSAL) for x in (tokens, tokens[order])
    )
    return np.asarray(plain), np.asarray(shuffled)[np.argsort(order)]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def change(name: str) -> float:
    """By how much shuffling changes the outputs of one drawn scheme: the largest difference, as a
    share of the largest output.
    """
    plain, back = shuffled_outputs(name)
    return float(np.abs(plain - back).max() / np.abs(plain).max())
