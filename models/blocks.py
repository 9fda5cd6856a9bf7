"""How much is worked on at once, so that memory grows with neither T·S nor T·V."""

from collections.abc import Callable

import jax

from models.blockwise import in_blocks
from models.transformer import Transformer, head_logits

LEAST = 16  # rows of a block, however large each is: fewer would make poor matrix products


def query_rows(model: Transformer, B: int, T: int, S: int, block_bytes: int) -> int | None:
    """Query rows per block of attention, so that the float32 logits of B rows against S keys take about
    `block_bytes`; None for all T at once."""
    block = max(LEAST, block_bytes // (4 * B * model.config.num_heads * S))
    return block if block < T else None


def per_token(
    model: Transformer, hidden: jax.Array, targets: jax.Array, measure: Callable, block_bytes: int
):
    """`measure`(logits, target) of each of targets [B, T], given what `Transformer.hidden` made, [B, T, D].

    Worked through in blocks of tokens whose float32 logits take about `block_bytes`; the backward
    pass makes the logits of a block again, so that neither pass holds more of them. Blocks run along
    T: where the rows are split over devices, each stays where it is.
    """
    B, T, D = hidden.shape
    tokens = max(LEAST, block_bytes // (4 * model.config.vocab_size))
    block = max(1, tokens // B)

    def one(rows, head):
        hidden, targets = rows  # [B, t, D], [B, t]
        logits = head_logits(hidden.reshape(-1, D), head).reshape(*targets.shape, -1)
        return measure(logits, targets)

    rows, head = (hidden, targets), model.head_matrix()
    return one(rows, head) if block >= T else in_blocks(one, block, rows, head)
