"""The model, and the two ways to see it: a module to call, or a flat dictionary of arrays to train and store."""

import jax
from flax import nnx

from models.blocks import per_token, query_rows
from models.config import ModelConfig
from models.positions import row_positions
from models.transformer import Transformer

Params = dict[str, jax.Array]

__all__ = [
    "ModelConfig",
    "Params",
    "Transformer",
    "build",
    "merge",
    "per_token",
    "query_rows",
    "row_positions",
    "split",
]


def build(config: ModelConfig, seed: int) -> Transformer:
    """A freshly initialised model. ValueError names a field that does not fit.

    Position parameters draw from a stream of their own, so two schemes with one seed share every
    other weight.
    """
    params, positions = jax.random.split(jax.random.key(seed))
    return Transformer(config, nnx.Rngs(params=params, posenc=positions))


def split(model: Transformer) -> tuple[nnx.GraphDef, Params]:
    """The static part (hashable), and the parameters by their dotted paths (`blocks.0.query.kernel`)."""
    graph, state = nnx.split(model)
    leaves = nnx.to_flat_state(state)
    return graph, {".".join(map(str, path)): leaf[...] for path, leaf in leaves}


def merge(graph: nnx.GraphDef, params: Params) -> Transformer:
    """The model with these parameters; the inverse of `split`, cheap enough for the inside of a jitted function."""
    flat = {
        tuple(int(p) if p.isdigit() else p for p in path.split(".")): nnx.Param(leaf)
        for path, leaf in params.items()
    }
    return nnx.merge(graph, nnx.from_flat_state(flat))
