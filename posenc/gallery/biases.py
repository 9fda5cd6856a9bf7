"""What bias schemes add to the logits, as matrices and as curves, of new schemes or of a trained run."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

import posenc

BIASES = ("alibi", "t5", "kerple", "sandwich", "fire")
SMALL = posenc.Dims(D=64, H=4, K=16, train_length=64)


def new_schemes() -> dict[str, posenc.Scheme]:
    """The bias schemes at the SMALL sizes; learned ones as they are before training, seed 0."""
    return {name: posenc.create(name, SMALL, nnx.Rngs(0)) for name in BIASES}


def run_schemes(workdir: str) -> dict[str, posenc.Scheme]:
    """The bias schemes of a trained run, with its parameters; ValueError if it has none."""
    import models
    from training.checkpoint import load_run

    run = load_run(workdir)
    graph, _ = models.split(models.build(run.model_config, run.config.seed))
    schemes = models.merge(graph, run.params).posenc
    found = {f"{name}, trained": s for name, s in schemes.items() if posenc.overrides(s, "bias")}
    if not found:
        raise ValueError(
            f"--run={workdir}: its scheme {run.model_config.position} adds no bias to the logits; "
            f"name a run of {', '.join(BIASES)}"
        )
    return found


def bias_matrix(scheme: posenc.Scheme, length: int, points: int) -> np.ndarray:
    """The bias at `points` evenly spaced positions of `length` tokens, [H, points, points].

    NaN where the key comes after its query. Rows are queries, columns keys.
    """
    pos = jnp.asarray(sampled(length, points), jnp.int32)
    matrix = np.array(scheme.at_length(length).bias(pos, pos), np.float64)
    matrix[:, np.asarray(pos)[:, None] < np.asarray(pos)[None]] = np.nan
    return matrix


def sampled(length: int, points: int) -> np.ndarray:
    """`points` positions, evenly from the first on, of `length` tokens; all of them where they are equal."""
    return np.arange(points) * length // points


def bias_curve(scheme: posenc.Scheme, query: int) -> np.ndarray:
    """The bias between the query at this position and the key at each distance, [H, query + 1]."""
    keys = jnp.arange(query, -1, -1, dtype=jnp.int32)
    at = scheme.at_length(query + 1)
    return np.asarray(at.bias(jnp.asarray([query], jnp.int32), keys))[:, 0]
