"""A scheme against its oracle: attention made from the hooks, its output and its gradients."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import posenc

from . import Setting, attend, embed, softmax
from . import logits as oracle_logits
from .parameters import read

Array = jax.Array


def plain_name(spec: str) -> str:
    """`yarn:factor=4+log_n` -> `yarn+log_n`."""
    return re.sub(r":[^+]*", "", spec)


def randomised(scheme: nnx.Module, seed: int = 1, scale: float = 0.3) -> nnx.Module:
    """The same scheme with noise on every parameter: zeros at the start would hide mistakes."""
    rng = np.random.default_rng(seed)
    graph, state = nnx.split(scheme)
    noisy = jax.tree.map(
        lambda leaf: leaf + scale * jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), state
    )
    return nnx.merge(graph, noisy)


def build(spec: str, s: Setting, G: int | None = None, seed: int = 0) -> nnx.Module:
    """The scheme of a setting, parameters randomised, at the setting's length if it names one."""
    dims = posenc.Dims(D=s.D, H=s.H, K=s.K, train_length=s.L, G=s.H if G is None else G)
    options = {} if "+" in spec else dict(s.options)
    scheme = randomised(posenc.create(spec, dims, nnx.Rngs(seed), **options))
    return scheme if s.n is None else scheme.at_length(s.n)


def hook_logits(scheme: nnx.Module, q: Array, k: Array, q_pos: Array, k_pos: Array) -> Array:
    """Masked logits float32 [H, T, S] as attention makes them from the hooks; k is [S, G, K]."""
    groups = q.shape[1] // k.shape[1]
    turned = jnp.repeat(scheme.key(k, k_pos), groups, axis=1)
    logits = jnp.einsum("thk,shk->hts", scheme.query(q, q_pos), turned) / q.shape[-1] ** 0.5
    content = scheme.content(q, jnp.repeat(k, groups, axis=1), q_pos, k_pos)
    bias = scheme.bias(q_pos, k_pos)
    for term in (content, bias):
        logits = logits if term is None else logits + term
    visible = k_pos[None, :] <= q_pos[:, None]  # [T, S]
    return jnp.where(visible[None], logits, -jnp.inf)


def hook_attention(
    scheme: nnx.Module, q: Array, k: Array, v: Array, q_pos: Array, k_pos: Array
) -> Array:
    """Attention output float32 [T, H, K] made from the hooks; k and v are [S, G, K]."""
    w = jax.nn.softmax(hook_logits(scheme, q, k, q_pos, k_pos), axis=-1)
    out = jnp.einsum("hts,shk->thk", w, jnp.repeat(v, q.shape[1] // v.shape[1], axis=1))
    value = scheme.value(w, q_pos, k_pos)
    return out if value is None else out + value


def hook_weights(scheme: nnx.Module, x: Array, pos: Array, H: int, K: int) -> Array:
    """Attention weights [H, T, T] of tokens x [T, D] under fixed random projections."""
    rng = np.random.default_rng(7)
    W_q, W_k = (jnp.asarray(rng.normal(size=(x.shape[1], H, K)), jnp.float32) for _ in range(2))
    x = scheme.embed(x, pos) * x.shape[1] ** -0.5
    q, k = jnp.einsum("td,dhk->thk", x, W_q), jnp.einsum("td,dhk->thk", x, W_k)
    return jax.nn.softmax(hook_logits(scheme, q, k, pos, pos), axis=-1)


def parameters_of(spec: str, scheme: nnx.Module) -> dict[str, np.ndarray]:
    return {
        key: np.asarray(value, np.float64) for key, value in read(plain_name(spec), scheme).items()
    }


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random float64 values that float32 holds exactly."""
    return rng.normal(size=shape).astype(np.float32).astype(np.float64)


def placements(s: Setting) -> list[tuple[np.ndarray, np.ndarray]]:
    """Query and key positions: all rows, the last three of the last window, and some with gaps."""
    last, rng = s.length, np.random.default_rng(3)
    window = np.arange(last - 12, last)
    gaps = np.sort(rng.choice(last, 12, replace=False))
    return [(np.arange(12), np.arange(12)), (window[-3:], window), (gaps, gaps)]


def assert_matches_oracle(spec: str, s: Setting, G: int | None = None, atol: float = 1e-5) -> None:
    """Embedding, softmax, and attention output equal the oracle's at every placement.

    The embedding gets twice the tolerance: an interpolated table is read at a float32 place.
    """
    name, rng = plain_name(spec), np.random.default_rng(0)
    scheme = build(spec, s, G)
    parameters = parameters_of(spec, scheme)
    G = s.H if G is None else G
    for q_pos, k_pos in placements(s):
        T, S = len(q_pos), len(k_pos)
        x, q = normal(rng, T, s.D), 1.5 * normal(rng, T, s.H, s.K)
        k, v = normal(rng, S, G, s.K), normal(rng, S, G, s.K)
        k_all, v_all = (np.repeat(y, s.H // G, axis=1) for y in (k, v))
        positions = (jnp.asarray(q_pos, jnp.int32), jnp.asarray(k_pos, jnp.int32))
        single = [jnp.asarray(y, jnp.float32) for y in (q, k, v)]

        ours = scheme.embed(jnp.asarray(x, jnp.float32), positions[0])
        np.testing.assert_allclose(
            ours, embed(name, s, parameters, x, q_pos), atol=2 * atol, err_msg=spec
        )
        ours = jax.nn.softmax(hook_logits(scheme, *single[:2], *positions), axis=-1)
        theirs = softmax(oracle_logits(name, s, parameters, q, k_all, q_pos, k_pos))
        np.testing.assert_allclose(ours, theirs, atol=atol, err_msg=spec)
        ours = hook_attention(scheme, *single, *positions)
        theirs = attend(name, s, parameters, q, k_all, v_all, q_pos, k_pos)
        np.testing.assert_allclose(ours, theirs, atol=atol, err_msg=spec)


def assert_gradients_match_oracle(spec: str, s: Setting, rtol: float = 2e-4) -> None:
    """Derivatives along random directions of the parameters, x, q, k and v, one of them at a time,
    equal central differences of the float64 oracle.
    """
    name, rng, step = plain_name(spec), np.random.default_rng(5), 1e-5
    scheme = build(spec, s)
    graph, state = nnx.split(scheme)
    k_pos = np.arange(s.length - 9, s.length - 4)
    q_pos = k_pos[2:]
    T, S = len(q_pos), len(k_pos)
    values = [normal(rng, T, s.D), normal(rng, T, s.H, s.K)]
    values += [normal(rng, S, s.H, s.K), normal(rng, S, s.H, s.K)]
    weight, weight_x = normal(rng, T, s.H, s.K), normal(rng, T, s.D)
    positions = (jnp.asarray(q_pos, jnp.int32), jnp.asarray(k_pos, jnp.int32))

    @jax.jit
    @jax.grad
    def ours(arguments):
        state, x, q, k, v = arguments
        scheme = nnx.merge(graph, state)
        out = hook_attention(scheme, q, k, v, *positions)
        embedded = scheme.embed(x, positions[0])
        return jnp.sum(out * jnp.float32(weight)) + jnp.sum(embedded * jnp.float32(weight_x))

    def oracle(parameters, x, q, k, v):
        out = attend(name, s, parameters, q, k, v, q_pos, k_pos)
        return np.sum(out * weight) + np.sum(embed(name, s, parameters, x, q_pos) * weight_x)

    gradients = ours((state, *(jnp.asarray(y, jnp.float32) for y in values)))
    for which in range(5):
        for _ in range(3):
            direction = [np.zeros_like(y) for y in values]
            raw = jax.tree.map(jnp.zeros_like, state)
            if which == 0:
                raw = jax.tree.map(lambda leaf: jnp.float32(rng.normal(size=leaf.shape)), state)
            else:
                direction[which - 1] = normal(rng, *values[which - 1].shape)
            named, moved = jax.jvp(lambda y: read(name, nnx.merge(graph, y)), (state,), (raw,))
            ends = []
            for sign in (1.0, -1.0):
                parameters = {
                    key: np.float64(named[key]) + sign * step * np.float64(moved[key])
                    for key in named
                }
                inputs = [y + sign * step * d for y, d in zip(values, direction, strict=True)]
                ends.append(oracle(parameters, *inputs))
            expected = (ends[0] - ends[1]) / (2.0 * step)
            pieces = jax.tree.map(lambda g, d: np.sum(np.float64(g) * d), gradients[0], raw)
            found = sum(jax.tree.leaves(pieces))
            found += sum(
                np.sum(np.float64(g) * d) for g, d in zip(gradients[1:], direction, strict=True)
            )
            np.testing.assert_allclose(
                found, expected, rtol=rtol, atol=1e-5, err_msg=f"{spec}, argument {which}"
            )
