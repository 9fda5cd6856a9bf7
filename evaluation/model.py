"""A trained model as the `score` of a sweep: tokens in, the loss of each next token out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import models
from evaluation.scoring import Undefined
from posenc import LengthError

# How much is worked on at once, for speed on a CPU's caches as well as for memory.
CHUNK_TOKENS = 8192  # tokens of the rows that go through the model together
BLOCK_BYTES = 2**22  # float32 attention logits of one block of query rows


class ModelScore:
    """score(tokens int32 [B, ℓ+1]) -> float32 [B, ℓ]: nats per token, compiled once for each
    length.

    The parameters are used under `position`, which may be another scheme than they were trained
    with. Raises Undefined at lengths where it is not defined. Randomised positions are a function
    of the window's tokens.
    """

    def __init__(self, config: models.ModelConfig, position: str, params: models.Params):
        config = dataclasses.replace(config, position=position)
        self.model = nnx.eval_shape(lambda: models.build(config, seed=0))
        self.params = params
        self.compiled = {}

    def factor(self, length: int) -> float | None:
        """The extension factor in use at this length; None where the scheme has none, or is not defined."""
        try:
            scheme = self.model.at_length(length).scheme
        except LengthError:
            return None
        parts = getattr(scheme, "parts", {"": scheme}).values()
        scales = [getattr(part, "scale", None) for part in parts]
        return next((float(scale) for scale in scales if scale is not None), None)

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        B, length = tokens.shape[0], tokens.shape[1] - 1
        rows = min(B, max(1, CHUNK_TOKENS // length))
        run = self.at(length, rows)
        # The last batch is filled up with repeats of its last row: those are scored once.
        different = np.flatnonzero((tokens != tokens[-1]).any(axis=1))
        used = different[-1] + 2 if different.size else 1
        chunks = []
        for start in range(0, used, rows):
            chunk = tokens[np.minimum(np.arange(start, start + rows), B - 1)]
            chunks.append(run(self.params, chunk)[: B - start])
        nll = np.concatenate([np.asarray(chunk) for chunk in chunks])[:used]
        return np.concatenate([nll, np.repeat(nll[-1:], B - used, axis=0)])

    def at(self, length: int, rows: int):
        """The compiled function of rows of one length."""
        if (length, rows) not in self.compiled:
            try:
                graph, _ = nnx.split(self.model.at_length(length))
            except LengthError as error:
                raise Undefined(str(error)) from None
            H = self.model.config.num_heads
            block = max(16, BLOCK_BYTES // (4 * rows * H * length))
            self.compiled[length, rows] = jax.jit(
                lambda params, tokens: token_nll(models.merge(graph, params), tokens, block)
            )
        return self.compiled[length, rows]


def token_nll(model: models.Transformer, tokens: jax.Array, block: int) -> jax.Array:
    """The nll of tokens[:, 1:], float32 [B, ℓ], nats."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    T = inputs.shape[1]
    mixed = jnp.cumsum(tokens.astype(jnp.uint32) * jnp.uint32(2654435761), axis=1)[:, -1]
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.key(0), mixed)
    positions = models.row_positions(model.scheme, T, keys)
    logits = model(inputs, positions, block=block if block < T else None)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)
