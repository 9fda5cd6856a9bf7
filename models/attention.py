"""One attention function for training, long evaluation in query blocks, and cached decoding.

It is written for one sequence and mapped over the batch, so positions may be shared by the rows
(their bias is then computed once) or differ between them. Query rows meet whatever keys there are:
T = S in training, a block of rows in long evaluation, one row against the cache in decoding.
"""

import functools
import itertools

import jax
import jax.numpy as jnp

from models.average import average
from models.blockwise import in_blocks
from posenc import Scheme
from posenc.composition import overrides

# What a fused kernel knows nothing of: it sees queries, keys and values, and masks by order.
UNFUSED = ("bias", "content", "value", "visible", "sink_positions")

# Queries are compared with no keys behind the end of their span. A span is more for the compiler to
# translate, with blocks a loop, so short sequences, where there is little to save, have few: at most
# so many, each of at least so many rows, by whichever pair gives more.
SPANS = ((8, 512), (4, 128))
WHOLE_SPANS = ((4, 64),)

Rows = tuple  # q [B, T, H, K], q_pos [T] or [B, T], q_segment [B, T] or None
Keys = tuple  # k [B, S, G, K], v [B, S, G, V], k_pos [S] or [B, S], k_segment [B, S] or None


def visible(q_pos, k_pos, q_segment=None, k_segment=None) -> jax.Array:
    """Which keys a query may see: those at its position or before, of its own segment; bool [T, S]."""
    seen = k_pos[None, :] <= q_pos[:, None]
    if q_segment is not None:
        seen &= q_segment[:, None] == k_segment[None, :]
    return seen


def attention_logits(
    scheme: Scheme, q, k, q_pos, k_pos, q_segment=None, k_segment=None
) -> tuple[jax.Array, jax.Array]:
    """What the softmax of query rows of one sequence is taken of: (logits [H, T, S], seen [T, S]).

    q [T, H, K]; k [S, G, K], raw (`scheme.query` and `scheme.key` are applied here); q_pos [T],
    k_pos [S] int32; segments likewise or None. Logits are float32, and float32's lowest number
    where `seen`, bool, is False.
    """
    T, H, K = q.shape
    S, G, _ = k.shape
    repeats = H // G
    seen = visible(q_pos, k_pos, q_segment, k_segment)  # [T, S]
    window = scheme.visible(q_pos, k_pos)
    seen = seen if window is None else seen & window
    raw_keys = jnp.repeat(k, repeats, axis=1)  # [S, H, K]
    # The heads of a group meet its one key and value as they are, never copies of them.
    keys = scheme.key(k, k_pos)

    def scores(q_pos) -> jax.Array:  # float32 [H, T, S]
        queries = scheme.query(q, q_pos).swapaxes(0, 1).reshape(G, repeats * T, K)
        logits = jnp.matmul(
            queries, keys.transpose(1, 2, 0), preferred_element_type=jnp.float32
        ).reshape(H, T, S)
        terms = (scheme.content(q, raw_keys, q_pos, k_pos, seen), scheme.bias(q_pos, k_pos))
        return sum((term for term in terms if term is not None), logits * K**-0.5)

    logits = scores(q_pos)
    as_seen_by_sinks = scheme.sink_positions(q_pos)
    if as_seen_by_sinks is not None:
        logits = jnp.where((k_pos < scheme.sinks)[None, None], scores(as_seen_by_sinks), logits)
    # A finite floor: a row that sees nothing (a filler) must not turn to NaN and spoil the gradient
    # of others.
    return jnp.where(seen[None], logits, jnp.finfo(jnp.float32).min), seen


def attend_rows(scheme: Scheme, q, k, v, q_pos, k_pos, q_segment=None, k_segment=None) -> jax.Array:
    """Query rows of one sequence against its keys.

    As `attention_logits`, with v [S, G, V], where V need not be K. Returns [T, H, V] in v's dtype.
    """
    logits, _ = attention_logits(scheme, q, k, q_pos, k_pos, q_segment, k_segment)
    out = average(logits, v)
    # Most schemes leave the weights alone, and then nothing computes them.
    extra = scheme.value(jax.nn.softmax(logits, axis=-1), q_pos, k_pos)
    return (out if extra is None else out + extra).astype(v.dtype)


def attend_batch(rows: Rows, met: tuple[Scheme, Keys]) -> jax.Array:
    """`attend_rows` of every sequence of a batch: the bias of positions that they share is computed once."""
    q, q_pos, q_segment = rows
    scheme, (k, v, k_pos, k_segment) = met
    axes = (0, 0, 0, 0 if q_pos.ndim == 2 else None, 0 if k_pos.ndim == 2 else None)
    axes += (None, None) if q_segment is None else (0, 0)
    one = functools.partial(attend_rows, scheme)
    return jax.vmap(one, in_axes=axes)(q, k, v, q_pos, k_pos, q_segment, k_segment)


def attend_spans(scheme: Scheme, block: int | None, rows: Rows, keys: Keys) -> jax.Array:
    """`attend_batch` in spans of rows; with `block` each span in blocks of that many query rows, so
    that memory grows with S and not with T·S.

    The rows belong to the last T of the S keys, or to earlier ones where a cache has room left, and
    positions increase within a segment: row i sees none of the keys behind S - T + i. So each of n
    spans of rows meets the keys up to its own end alone, and (n + 1)/2n of all pairs are computed.
    """
    T, S = rows[0].shape[1], keys[0].shape[1]
    unit, limits = (block, SPANS) if block else (1, WHOLE_SPANS)
    units = -(-T // unit)
    spans = max(1, *(min(most, units, T // least) for most, least in limits))
    edges = [unit * (units * i // spans) for i in range(spans)] + [T]
    out = []
    for first, end in itertools.pairwise(edges):
        some = jax.tree.map(lambda a: along_tokens(a, first, end), rows)  # noqa: B023 (called here)
        seen = jax.tree.map(lambda a: along_tokens(a, 0, S - T + end), keys)  # noqa: B023
        met = (scheme, seen)
        out.append(in_blocks(attend_batch, block, some, met) if block else attend_batch(some, met))
    return jnp.concatenate(out, axis=1) if len(out) > 1 else out[0]


def along_tokens(a: jax.Array, first: int, end: int) -> jax.Array:
    """Tokens first … end - 1 of an array [B, T, …], or of positions [T]."""
    return jax.lax.slice_in_dim(a, first, end, axis=min(1, a.ndim - 1))


def attend(
    scheme: Scheme, q, k, v, q_pos, k_pos, q_segment=None, k_segment=None, block: int | None = None
) -> jax.Array:
    """Attention of a batch: q [B, T, H, K], k [B, S, G, K], v [B, S, G, V] -> [B, T, H, V].

    Positions are [T] and [S] when the rows share them, else [B, T] and [B, S], and increase within a
    segment; segments are [B, T] and [B, S], or None for one segment. With `block`, T is worked
    through in blocks of that many query rows. On a GPU, a scheme that acts on queries and keys alone
    is left to the fused kernel of `jax.nn.dot_product_attention`, where that has one for the dtype
    and shapes.
    """
    if fusible(scheme, q, k, v, q_segment) and jax.default_backend() == "gpu":
        return attend_fused(scheme, q, k, v, q_pos, k_pos)
    block = block if block is not None and block < q.shape[1] else None
    return attend_spans(scheme, block, (q, q_pos, q_segment), (k, v, k_pos, k_segment))


def fusible(scheme: Scheme, q, k, v, q_segment=None) -> bool:
    """Whether cuDNN's attention computes the same: whole sequences in half precision, masked by order only."""
    return (
        not any(overrides(scheme, hook) for hook in UNFUSED)
        and q_segment is None
        and q.shape[1] == k.shape[1]
        and q.dtype in (jnp.bfloat16, jnp.float16)
        and k.shape == v.shape
        and q.shape[-1] % 8 == 0
        and q.shape[-1] <= 128
    )


def attend_fused(scheme: Scheme, q, k, v, q_pos, k_pos) -> jax.Array:
    """`attend` by cuDNN's flash attention, whose memory grows with T and not with its square.

    Positions increase along a row, so that to mask by order is to mask by position.
    """
    q = jax.vmap(scheme.query, in_axes=(0, 0 if q_pos.ndim == 2 else None))(q, q_pos)
    k = jax.vmap(scheme.key, in_axes=(0, 0 if k_pos.ndim == 2 else None))(k, k_pos)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
