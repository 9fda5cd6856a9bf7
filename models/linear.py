"""Linear attention: no softmax, so that all earlier tokens are one sum per head, however many there are.

Katharopoulos et al. 2020, "Transformers are RNNs"; with rotary positions as in RoFormer (Su et al.
2021), eq. 19.
"""

import functools
import math

import jax
import jax.numpy as jnp

from models.carry import parts_of
from models.config import ModelConfig
from models.multihead import EMPTY, Cache, MultiHeadAttention
from posenc import Scheme

CHUNK = 64  # tokens whose pairs are computed one by one; sums carry the rest. Speed only.


class LinearAttention(MultiHeadAttention):
    """out_i = Σ_j (R_i φ(q_i))·(R_j φ(k_j)) v_j / (Σ_j φ(q_i)·φ(k_j) + 1e-6) over j ≤ i, φ = elu + 1.

    The projections are those of softmax attention. Rotated products may be negative, which is why
    the denominator leaves them unrotated. A token's past are the rows before it, of its own segment;
    the rows of a segment stand together, as documents do.
    """

    def __call__(
        self, x, scheme: Scheme, positions, segments, block, cache: Cache | None, last=None
    ):
        """x [B, T, D] -> ([B, last or T, D], the cache with all T tokens or None)."""
        B, T, D = x.shape
        last = last or T
        _, q, k, v = self.operands(x, scheme, positions)
        segments = jnp.zeros((B, T), jnp.int32) if segments is None else segments
        before = self.init_cache(self.config, B, T) if cache is None else cache
        one = functools.partial(attend_linear, scheme, min(CHUNK, block or CHUNK))
        axes = (0, 0, 0, 0 if positions.ndim == 2 else None, 0, 0)
        y, after = jax.vmap(one, in_axes=axes)(q, k, v, positions, segments, before)
        y = self.out(y[:, T - last :].reshape(B * last, -1)).reshape(B, last, D)
        return y, None if cache is None else after

    @staticmethod
    def init_cache(c: ModelConfig, batch: int, length: int) -> Cache:
        """The sums over no tokens; they take the same room for any `length`."""
        G, K = c.num_kv_heads, c.head_size
        return {
            "state": jnp.zeros((batch, G, K, K), jnp.float32),  # Σ R_j φ(k_j) v_jᵀ
            "normaliser": jnp.zeros((batch, G, K), jnp.float32),  # Σ φ(k_j)
            "segment": jnp.full(batch, EMPTY, jnp.int32),  # whose tokens these are
        }


def attend_linear(scheme: Scheme, chunk: int, q, k, v, positions, segments, before: Cache):
    """One sequence: q [T, H, K]; k, v [T, G, K]; positions and segments [T]; the sums over what came before.

    Returns ([T, H, K] in v's dtype, the sums with these tokens). Worked through `chunk` rows at a
    time, in float32.
    """
    T, H, K = q.shape
    G = k.shape[1]
    features = [jax.nn.elu(a.astype(jnp.float32)) + 1 for a in (q, k)]
    # A temperature (YaRN's) sharpens a softmax; here it would only scale the output, so it is undone.
    scale = math.prod(getattr(part, "attention_factor", 1.0) for part in parts_of(scheme))
    q_turned = (scheme.query(features[0], positions) / scale).reshape(T, G, H // G, K)
    k_turned = scheme.key(features[1], positions) / scale
    rows = (features[0].reshape(T, G, H // G, K), q_turned, features[1], k_turned, v, segments)
    whole = T - T % chunk
    out = []
    if whole:
        chunks = jax.tree.map(lambda a: a[:whole].reshape(-1, chunk, *a.shape[1:]), rows)
        before, y = jax.lax.scan(attend_chunk, before, chunks)
        out.append(y.reshape(whole, H, K))
    if whole < T:
        before, y = attend_chunk(before, jax.tree.map(lambda a: a[whole:], rows))
        out.append(y.reshape(T - whole, H, K))
    return jnp.concatenate(out).astype(v.dtype), before


def attend_chunk(before: Cache, rows):
    """(the sums before, a chunk of C rows) -> (the sums after, out float32 [C, G, H/G, V])."""
    q, q_turned, k, k_turned, v, segments = rows  # [C, G, H/G, K] twice, [C, G, K] thrice, [C]
    v = v.astype(jnp.float32)
    seen = jnp.tril(segments[:, None] == segments[None, :]).astype(jnp.float32)  # [C, C]
    goes_on = (segments == before["segment"]).astype(jnp.float32)  # [C]
    pairs = jnp.einsum("tgrk,sgk->grts", q_turned, k_turned) * seen[None, None]
    past = jnp.einsum("tgrk,gkv->tgrv", q_turned, before["state"])
    above = jnp.einsum("grts,sgv->tgrv", pairs, v) + past * goes_on[:, None, None, None]
    sums = jnp.einsum("ts,sgk->tgk", seen, k)
    sums = sums + goes_on[:, None, None] * before["normaliser"][None]
    below = jnp.einsum("tgrk,tgk->tgr", q, sums) + 1e-6
    # After the chunk only its last row's segment can go on.
    kept = k_turned * (segments == segments[-1]).astype(jnp.float32)[:, None, None]
    after = {
        "state": jnp.einsum("sgk,sgv->gkv", kept, v) + goes_on[-1] * before["state"],
        "normaliser": sums[-1],
        "segment": segments[-1],
    }
    return after, above / below[..., None]
