"""Model FLOPs: counted by hand, and against what XLA counts in the program that trains."""

import jax
import numpy as np
import pytest

import models
from configs import smoke
from training import flops, mesh
from training.config import RunConfig
from training.step import init_state, make_train_step

V = 50


def build(batch_size=2, **model):
    config = smoke.get_config("nope" if model.get("attention") == "linear" else "rope")
    config.model.update({"d_model": 64, "num_heads": 4, "d_ff": 96, **model})
    config.train.update({"length": 64, "batch_size": batch_size, "accumulate": 1})
    config.mesh.data = 1
    config = RunConfig.from_config(config)
    c = config.model_config(V)
    graph, params = models.split(models.build(c, 0))
    return config, c, graph, params


def test_by_hand_for_softmax_attention():
    _, c, _, params = build(num_kv_heads=2)
    D, F, T, N, H, G, K = 64, 96, 64, 2, 4, 2, 16
    matrices = N * (D * H * K + 2 * D * G * K + H * K * D + 3 * D * F) + D * V
    assert flops.per_token(c, params) == 6 * matrices + 12 * N * H * K * T


def test_by_hand_for_latent_and_linear_attention():
    D, F, T, N, H, K, C, R = 64, 96, 64, 2, 4, 16, 12, 8
    _, c, _, params = build(attention="latent", latent_size=C, rope_size=R)
    kernels = D * H * (K + R) + D * (C + R) + 2 * C * H * K + H * K * D + 3 * D * F
    attention = 6 * H * (K + R) * T + 6 * H * K * T
    assert flops.per_token(c, params) == 6 * (N * kernels + D * V) + N * attention
    _, c, _, params = build(attention="linear", num_kv_heads=2)
    kernels = D * H * K + 2 * D * 2 * K + H * K * D + 3 * D * F
    assert flops.per_token(c, params) == 6 * (N * kernels + D * V) + N * 6 * (2 + H) * K * K


def test_what_a_scheme_adds_and_untied_embeddings():
    _, c, _, params = build()
    tied = flops.per_token(c, params)
    _, c, _, params = build(tie_embeddings=False)
    assert flops.per_token(c, params) == tied
    scheme = {**params, "blocks.0.posenc.deberta.query_projection": np.ones((64, 64))}
    scheme |= {"posenc.fire.kernel": np.ones((64, 64))}
    assert flops.per_token(c, scheme) == tied


@pytest.mark.parametrize("kind", ["softmax", pytest.param("latent", marks=pytest.mark.slow)])
def test_against_the_program_that_trains(kind):
    """XLA counts every operation; in a model of some width nearly all are products of matrices."""
    sizes = {"latent_size": 12, "rope_size": 8} if kind == "latent" else {}
    B = 8
    config, c, graph, params = build(B, attention=kind, **sizes)
    state = init_state(params, config)
    tokens = np.zeros((B, c.train_length + 1), np.int32)
    batch = {"tokens": tokens, "weights": np.ones((B, c.train_length), np.float32)}
    analysis = make_train_step(graph, config).lower(state, batch).compile().cost_analysis()
    counted = B * c.train_length * flops.per_token(c, params)
    assert 0.75 < counted / analysis["flops"] < 1.05, counted / analysis["flops"]


def test_peaks():
    class Device:
        def __init__(self, kind):
            self.device_kind = kind

    class Devices:
        def __init__(self, kind, size):
            self.devices, self.size = np.array([Device(kind)] * size), size

    for kind, peak in (
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("TPU v4", 275e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5", 459e12),
        ("TPU v6 lite", 918e12),
    ):
        assert flops.peak(Devices(kind, 8), "bfloat16") == 8 * peak
    assert flops.peak(Devices("NVIDIA A100-SXM4-80GB", 1), "float32") == 156e12
    config, *_ = build(batch_size=8)
    assert flops.peak(mesh.make_mesh(config.mesh, config.train), "float32") is None
    assert jax.devices()[0].device_kind == "cpu"
