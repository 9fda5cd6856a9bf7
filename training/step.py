"""The train step and the validation loss, as pure functions of plain pytrees.

State is {"params": flat dictionary, "opt_state": optax's, "step": int32}. Everything random at a
step (dropout, randomised positions) is a function of (seed, step).
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import models
from training.config import RunConfig
from training.optimizer import learning_rate, make_optimizer

State = dict[str, Any]
Batch = dict[
    str, jax.Array
]  # tokens [B, T+1], weights [B, T]; with isolated documents segments, positions [B, T]


# Float32 logits that are held at once, of attention's rows and over the vocabulary: all of them up
# to WHOLE_BYTES; above that, blocks that the backward pass makes again. On two cores that costs a
# tenth of the step where attention is half of it, so it begins where memory is what counts.
WHOLE_BYTES = 2**28
ROW_BLOCK_BYTES = 2**25
VOCABULARY_BLOCK_BYTES = 2**27


def init_state(params: models.Params, config: RunConfig) -> State:
    """A fresh optimiser around these parameters, at step 0."""
    optimizer = make_optimizer(config.train)
    return {
        "params": params,
        "opt_state": optimizer.init(params),
        "step": jnp.zeros((), jnp.int32),
    }


def sum_nll(model: models.Transformer, batch: Batch, key: jax.Array, dropout: bool) -> jax.Array:
    """Σ weight·nll over the batch's targets, nats; `key` draws randomised positions, and dropout if it is on."""
    inputs, targets = batch["tokens"][:, :-1], batch["tokens"][:, 1:]  # [B, T]
    positions_key, dropout_key = jax.random.split(key)
    B, T = inputs.shape
    positions = models.row_positions(
        model.scheme, T, jax.random.split(positions_key, B), batch.get("positions")
    )
    hidden, _ = model.hidden(
        inputs,
        positions,
        batch.get("segments"),
        key=dropout_key if dropout else None,
        block=query_rows(model, B, T),
    )
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    whole = 4 * B * T * model.config.vocab_size <= WHOLE_BYTES
    limit = WHOLE_BYTES if whole else VOCABULARY_BLOCK_BYTES
    nll = models.per_token(model, hidden, targets, cross_entropy, limit)  # [B, T] float32
    return jnp.sum(nll * batch["weights"])


def query_rows(model: models.Transformer, B: int, T: int) -> int | None:
    """Query rows per block of attention, or None for all at once."""
    whole = 4 * B * model.config.num_heads * T * T <= WHOLE_BYTES
    return None if whole else models.query_rows(model, B, T, T, ROW_BLOCK_BYTES)


def make_train_step(graph: nnx.GraphDef, config: RunConfig):
    """The jitted (state, batch) -> (state, metrics); the state given is consumed.

    Gradients are those of the token-weighted mean over the whole batch, whatever `accumulate`
    splits it into, and are clipped after they are put together. `grad_norm` is the norm before
    clipping. `finite` is whether loss and update are: nothing else may be saved.
    """
    c = config.train
    optimizer, schedule = make_optimizer(c), learning_rate(c)

    def loss(params, batch, key, tokens):
        return sum_nll(models.merge(graph, params), batch, key, dropout=True) / tokens

    def train_step(state: State, batch: Batch):
        key = jax.random.fold_in(jax.random.key(config.seed), state["step"])
        tokens = jnp.maximum(jnp.sum(batch["weights"]), 1)
        if c.accumulate == 1:
            nll, grads = jax.value_and_grad(loss)(state["params"], batch, key, tokens)
        else:
            nll, grads = accumulated(loss, state["params"], batch, key, tokens, c.accumulate)
        updates, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        metrics = {
            "loss": nll,
            "lr": schedule(state["step"]),
            "grad_norm": optax.tree.norm(grads),
            "finite": finite(nll, grads, updates),
        }
        return {"params": params, "opt_state": opt_state, "step": state["step"] + 1}, metrics

    return jax.jit(train_step, donate_argnums=0)


def finite(*trees) -> jax.Array:
    """Whether the norm of each tree is a finite number."""
    return jnp.all(jnp.stack([jnp.isfinite(optax.tree.norm(tree)) for tree in trees]))


def accumulated(loss, params, batch, key, tokens, rounds: int):
    """Loss and gradient of a batch worked through in `rounds` parts of equal rows, one after the other."""
    # Rows are dealt out in turn, so each device keeps its own rows in every round.
    parts = jax.tree.map(lambda a: a.reshape(-1, rounds, *a.shape[1:]).swapaxes(0, 1), batch)
    keys = jax.random.split(key, rounds)

    def add(total, part):
        nll, grads = jax.value_and_grad(loss)(params, *part, tokens)
        return jax.tree.map(jnp.add, total, (nll, grads)), None

    zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
    return jax.lax.scan(add, zero, (parts, keys))[0]


def make_eval_step(graph: nnx.GraphDef):
    """The jitted (params, batch) -> Σ weight·nll, without dropout; randomised positions are drawn from one key."""

    def eval_step(params, batch):
        return sum_nll(models.merge(graph, params), batch, jax.random.key(0), dropout=False)

    return jax.jit(eval_step)
