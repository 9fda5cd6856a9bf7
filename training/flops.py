"""The arithmetic that a model asks for, and the share of an accelerator's peak that a run reaches.

Counted as in PaLM (Chowdhery et al. 2022, appendix B): what the model needs, forward and backward,
whatever is recomputed, fused or skipped on the way. Attention counts every pair of positions, seen
or not. What a position scheme adds of its own is left out, so schemes are compared by their speed.
"""

from jax.sharding import Mesh

import models

# Part of a device's kind, the first that fits -> dense peak in FLOP/s: bfloat16, and float32 as JAX
# multiplies it by default (TF32 on GPUs, bfloat16 passes on TPUs). From the data sheets of NVIDIA's
# A100, H100 and H200 Tensor Core GPUs, and the system architecture pages of Google's Cloud TPU.
PEAKS = (
    ("A100", 312e12, 156e12),
    ("H100 PCIe", 756e12, 378e12),
    ("H100 NVL", 835e12, 417e12),
    ("H100", 989e12, 494e12),
    ("H200 NVL", 835e12, 417e12),
    ("H200", 989e12, 494e12),
    ("TPU v4", 275e12, 275e12),
    ("TPU v5 lite", 197e12, 197e12),
    ("TPU v5e", 197e12, 197e12),
    ("TPU v5", 459e12, 459e12),  # v5p
    ("TPU v6", 918e12, 918e12),  # v6e
)


def per_token(c: models.ModelConfig, params: models.Params) -> float:
    """Model FLOPs of training on one token at c.train_length: 6 a matrix entry, and those of attention.

    A matrix is a dense kernel or the output matrix; looking a token's embedding up is no product.
    """
    kernels = sum(
        array.size
        for name, array in params.items()
        if name.endswith(".kernel") and "posenc" not in name.split(".")
    )
    output = c.vocab_size * c.d_model if c.tie_embeddings else 0  # else one of the kernels
    # Forward, twice as much backward.
    return 6.0 * (kernels + output) + 3.0 * c.num_layers * attention_forward(c)


def attention_forward(c: models.ModelConfig) -> int:
    """FLOPs of one layer's attention for one query, its projections not counted; 2 a multiplication."""
    H, G, K, T = c.num_heads, c.num_kv_heads, c.head_size, c.train_length
    if (
        c.attention == "linear"
    ):  # the state K x K takes in a token, and is read: no pairs of positions
        return 2 * (G + H) * K * K
    rotary = c.rope_size if c.attention == "latent" else 0  # channels beside the content's
    return 2 * H * (K + rotary) * T + 2 * H * K * T


def peak(mesh: Mesh, dtype: str) -> float | None:
    """Peak FLOP/s of all devices together; None where their kind has no figure here, as on CPUs."""
    kind = mesh.devices.flat[0].device_kind
    for name, bfloat16, float32 in PEAKS:
        if name in kind:
            return mesh.size * (bfloat16 if dtype == "bfloat16" else float32)
    return None
