"""Every registered scheme, as tests want it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posenc

from .comparison import randomised

L, D, H, G, K = 16, 8, 4, 2, 8
N = 8  # rows in most tests: one shape, so that each operation compiles once for all schemes
EVERY = tuple(posenc.SCHEMES)

# The options without which a scheme cannot be made; every other scheme is made with none.
REQUIRED = {
    "longrope": {"short_factor": (1.0, 1.1, 1.3, 2.0), "long_factor": (1.0, 1.5, 3.0, 4.0)},
    "window": {"size": 4},
}

# Beside its defaults, each scheme is tested as these, where options change what it claims.
VARIANTS = [
    ("learned", {"extend": "interpolate"}),
    ("rope", {"pairing": "interleaved", "rotary_fraction": 0.5}),
    ("pi", {"factor": 4.0}),
    ("ntk", {"factor": 4.0}),
    ("dynamic_ntk", {"factor": 2.0}),
    ("yarn", {"factor": 4.0}),
    ("yarn", {"ramp": "wavelength"}),
    ("rope+log_n", {}),
    ("alibi+log_n", {}),
    ("yarn+log_n", {}),
    ("yarn:factor=4+log_n", {}),
    ("sinusoidal+rope", {}),
    ("ntk_by_parts", {"factor": 4.0}),
    ("llama3", {"factor": 4.0}),
    ("kerple", {"kind": "power"}),
    ("shaw", {"values": False}),
    ("deberta", {"p2c_index": "paper"}),
    ("log_n", {"clip": False}),
    ("rope", {"positions": "randomized"}),
]
CASES = [(name, REQUIRED.get(name, {})) for name in EVERY]
CASES += [
    (spec, o) for spec, o in VARIANTS if all(p.split(":")[0] in EVERY for p in spec.split("+"))
]
IDS = [f"{spec}-{options}".replace(" ", "").removesuffix("-{}") for spec, options in CASES]
# Variants of these kinds are in `make test`; those of kin that differ in a number are in `make slow`.
QUICK = {"learned", "rope", "pi", "rope+log_n", "shaw"}


def slow_variants(cases) -> list:
    """The cases as parameters, with all variants but the quick ones marked slow."""
    kin = [case for case in VARIANTS if case[0] not in QUICK]
    return [pytest.param(c, marks=pytest.mark.slow) if c in kin else c for c in cases]


every_case = pytest.mark.parametrize("case", slow_variants(CASES), ids=IDS)
every_scheme = pytest.mark.parametrize("name", EVERY)

# These may not tell far neighbours apart: no positions, buckets, or a clipped distance.
COARSE = {"nope", "t5", "shaw", "deberta", "cope", "window"}
PER_LAYER = {"shaw", "transformer_xl", "xlnet", "deberta", "cope"}


@functools.cache
def made(index, train_length=L, head_size=K):
    spec, options = CASES[index]
    return create(spec, train_length, head_size, **options)


def create(spec, train_length=L, head_size=K, **options):
    dims = posenc.Dims(D=D, H=H, K=head_size, train_length=train_length, G=G)
    return randomised(posenc.create(spec, dims, nnx.Rngs(0), **options))


def scheme_for(case, **sizes):
    return made(CASES.index(case), **sizes)


def far(scheme, n):
    """The scheme at n tokens, or as it is where a table ends before them."""
    return scheme if scheme.max_length is not None else scheme.at_length(n)


def arange(start, stop):
    return jnp.arange(start, stop, dtype=jnp.int32)


def inputs(T, S, dtype=jnp.float32, head_size=K, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(T, D), (T, H, head_size), (S, G, head_size), (H, T, S)]
    x, q, k, w = (jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes)
    return x, q, k, jax.nn.softmax(w.astype(jnp.float32), axis=-1)


def outputs(scheme, x, q, k, w, q_pos, k_pos):
    """Every hook's output by name, those that are None left out."""
    found = {
        "embed": scheme.embed(x, q_pos),
        "query": scheme.query(q, q_pos),
        "key": scheme.key(k, k_pos),
        "bias": scheme.bias(q_pos, k_pos),
        "content": scheme.content(q, jnp.repeat(k, H // G, axis=1), q_pos, k_pos),
        "value": scheme.value(w, q_pos, k_pos),
    }
    return {hook: out for hook, out in found.items() if out is not None}
