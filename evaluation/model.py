"""A trained model as the `score` of a sweep: tokens in, the loss of each next token out."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import models
from evaluation import programs
from evaluation.scoring import Undefined
from models import memory
from models.multihead import Cache
from posenc import LengthError, overrides

# How much is worked on at once, for speed on a CPU's caches as well as for memory.
CHUNK_TOKENS = 8192  # tokens of the rows that go through the model together
BLOCK_BYTES = 2**24  # float32 logits of one block: of attention's rows, or over the vocabulary


cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def token_nll(model: models.Transformer, tokens: jax.Array, last: int | None = None) -> jax.Array:
    """The nll of tokens[:, 1:], float32 [B, ℓ], nats; of the last so many alone [B, last]."""
    targets = tokens[:, 1:] if last is None else tokens[:, -last:]
    return models.per_token(model, read(model, tokens, last), targets, cross_entropy, BLOCK_BYTES)


@functools.cache  # the same function each time, which is what finds its compiled programs again
def last_nll(last: int) -> Callable:
    """`token_nll` of the last so many tokens."""

    @functools.wraps(token_nll)
    def measure(model: models.Transformer, tokens: jax.Array) -> jax.Array:
        return token_nll(model, tokens, last)

    return measure


def token_predictions(model: models.Transformer, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The nll of tokens[:, 1:] and whether each is the most probable token, both [B, ℓ]."""

    def measure(logits, target):
        return cross_entropy(logits, target), jnp.argmax(logits, axis=-1) == target

    return models.per_token(model, read(model, tokens), tokens[:, 1:], measure, BLOCK_BYTES)


def read(model: models.Transformer, tokens: jax.Array, last: int | None = None) -> jax.Array:
    """What `Transformer.hidden` makes of the inputs of tokens [B, ℓ+1], [B, ℓ or last, D]."""
    inputs = tokens[:, :-1]
    B, T = inputs.shape
    positions = models.row_positions(model.scheme, T, draws(tokens))
    return model.hidden(inputs, positions, block=query_rows(model, B, T, T), last=last)[0]


class ModelScore:
    """score(tokens int32 [B, ℓ+1]) -> float32 [B, ℓ]: nats per token, compiled once for each
    length and number of losses asked for (`last`), together with all models and schemes that differ
    in numbers only (`programs.general`).

    The parameters are used under `position`, which may be another scheme than they were trained
    with. Raises Undefined at lengths where it is not defined, and TooLarge before running one
    that the device has not the memory for. Randomised positions are a function
    of the tokens read: a window's, or a segment's (the memory then stands at the first positions of
    the segment's own draw).
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
        return self._in_chunks(tokens, token_nll)

    def last(self, tokens: np.ndarray, count: int) -> np.ndarray:
        """The last `count` columns of a call, float32 [B, count], without the work for the others
        that the last layer and the vocabulary would be."""
        return self._in_chunks(tokens, last_nll(count))

    def predictions(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(nats float32 [B, ℓ], bool [B, ℓ]: whether the target is the most probable token)."""
        return self._in_chunks(tokens, token_predictions)

    def _in_chunks(self, tokens: np.ndarray, measure: Callable):
        """`measure` of all rows, as many at a time as CHUNK_TOKENS allows."""
        B, length = tokens.shape[0], tokens.shape[1] - 1
        rows = min(B, max(1, CHUNK_TOKENS // length))
        run = self.at(length, rows, measure)
        # The last batch is filled up with repeats of its last row: those are scored once.
        different = np.flatnonzero((tokens != tokens[-1]).any(axis=1))
        used = different[-1] + 2 if different.size else 1
        chunks = []
        for start in range(0, used, rows):
            chunk = tokens[np.minimum(np.arange(start, start + rows), B - 1)]
            chunks.append(run(self.params, chunk))

        def joined(*parts: jax.Array) -> np.ndarray:
            found = np.concatenate([np.asarray(part) for part in parts])[:used]
            return np.concatenate([found, np.repeat(found[-1:], B - used, axis=0)])

        return jax.tree.map(joined, *chunks)

    def at(self, length: int, rows: int, measure: Callable = token_nll):
        """The compiled `measure` (of tokens [rows, length + 1]) of rows of one length."""
        key = (measure, length, rows)
        if key not in self.compiled:
            while len(self.compiled) >= programs.KEPT:
                del self.compiled[next(iter(self.compiled))]
            tokens = jax.ShapeDtypeStruct((rows, length + 1), jnp.int32)
            while len(self.compiled) >= programs.KEPT:  # the oldest goes
                del self.compiled[next(iter(self.compiled))]
            self.compiled[key] = self.program(length, measure, tokens)
        return self.compiled[key]

    def program(self, length: int, function: Callable, *rest) -> Callable:
        """function(model, *rest) as one of (params, *rest), compiled for the model at this length and
        arrays like `rest`. Undefined where its scheme is not defined, TooLarge where it does not fit.
        """
        try:
            graph, numbers = programs.general(self.model.at_length(length))
        except LengthError as error:
            raise Undefined(str(error)) from None
        run = programs.program(length, function, graph, self.params | numbers, *rest)
        return lambda params, *rest: run(params | numbers, *rest)

    def recurrent(self, length: int, segment: int) -> tuple[Callable, Callable]:
        """(initial_state, step), as `sweep` asks for them: one compilation for each length.

        The scheme is that of `at_length(length)` from the first segment on. Raises Undefined where a
        memory has no meaning: under schemes that add positions to the embeddings, whose kept keys
        hold the places they were once read at (every segment would look like the one before), and
        with attention sinks, the document's first tokens, which the memory lets go.
        """
        scheme = self.model.scheme
        if self.model.config.attention == "linear":
            raise Undefined(
                "model.attention=linear keeps a running state, not a memory of ℓ tokens"
            )
        if length > segment and overrides(scheme, "embed"):
            raise Undefined(
                "positions added to the embeddings are baked into the memory's keys, "
                "which would keep the places that they were read at"
            )
        if length > segment and scheme.sinks:
            raise Undefined(
                f"sinks={scheme.sinks}: a memory of the last tokens lets the document's first ones go"
            )

        def initial_state(B: int) -> list[list[Cache]]:  # the caches of each chunk of rows
            chunks = -(-B // max(1, CHUNK_TOKENS // length))
            rows = -(-B // chunks)
            state = [memory.begin(self.model, rows, length, segment) for _ in range(-(-B // rows))]
            if (length, segment, rows) not in self.compiled:
                tokens = jax.ShapeDtypeStruct((rows, segment + 1), jnp.int32)
                fresh = jax.ShapeDtypeStruct((rows,), jnp.bool_)
                run = self.program(length, segment_nll, state[0], tokens, fresh)
                self.compiled[length, segment, rows] = run
            return state

        def step(state: list[list[Cache]], tokens: np.ndarray, fresh: np.ndarray):
            rows, losses, kept = len(state[0][0]["segments"]), [], []
            run = self.compiled[length, segment, rows]
            for number, caches in enumerate(state):
                # the last chunk is filled up with the last row
                chosen = np.minimum(np.arange(rows) + number * rows, len(tokens) - 1)
                nll, caches = run(self.params, caches, tokens[chosen], fresh[chosen])
                losses.append(nll)
                kept.append(caches)
            return np.concatenate(losses)[: len(tokens)], kept

        return initial_state, step


def segment_nll(
    model: models.Transformer, caches: list[Cache], tokens: jax.Array, fresh: jax.Array
) -> tuple[jax.Array, list[Cache]]:
    """The nll of tokens[:, 1:] behind what the caches hold, float32 [B, L], and the caches after it.

    Rows where `fresh` [B] forget first. Positions count from the oldest token of a row's memory, so
    that they stay below the caches' ℓ slots.
    """
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    B, T = inputs.shape
    caches = [memory.reset(cache, fresh) for cache in caches]
    S = caches[0]["segments"].shape[1]
    empty = S - T - memory.held(caches[0])  # [B] slots before the memory's oldest token
    places = jnp.maximum(jnp.arange(S, dtype=jnp.int32)[None] - empty[:, None], 0)
    positions = models.row_positions(model.scheme, S, draws(tokens), restarted=places)  # [B, S]
    caches = [cache | {"positions": positions} for cache in caches]
    block = query_rows(model, B, T, S)
    hidden, caches = model.hidden(inputs, positions[:, S - T :], block=block, cache=caches)
    nll = models.per_token(model, hidden, targets, cross_entropy, BLOCK_BYTES)
    return nll, [memory.shift(cache, T) for cache in caches]


def draws(tokens: jax.Array) -> jax.Array:
    """A key for each row [B], for randomised positions: a function of its tokens alone."""
    mixed = jnp.cumsum(tokens.astype(jnp.uint32) * jnp.uint32(2654435761), axis=1)[:, -1]
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.key(0), mixed)


def query_rows(model: models.Transformer, B: int, T: int, S: int) -> int | None:
    """Query rows per block, so that B rows' logits against S keys stay small; None for all T at once."""
    return models.query_rows(model, B, T, S, BLOCK_BYTES)
