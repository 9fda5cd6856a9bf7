"""Training and evaluation lower for GPUs and TPUs from a machine that has neither."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from oracles.registered import EVERY

import models
from configs import base
from evaluation.model import token_nll
from models import attention
from training.config import RunConfig
from training.step import init_state, make_train_step

SPECS = {
    "longrope": "longrope:short_factor=1/1/1/1,long_factor=1/1/2/2",
    "window": "rope+window:size=4,sinks=1,streaming=true",
}
QUICK = ("rope", "alibi", "shaw")
# Where the calls of cuDNN's attention say that no later version has to read them.
CUDNN = [
    export.DisabledSafetyCheck.custom_call(f"__cudnn$fmhaSoftmax{name}")
    for name in ("", "Backward")
]
B, T = 2, 16

every_scheme = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EVERY]
)


def run_config(position: str) -> RunConfig:
    config = base.get_config(position)
    config.model.update(num_layers=1, d_model=16, num_heads=2, d_ff=16, dtype="bfloat16")
    config.train.length, config.train.batch_size = T, B
    return RunConfig.from_config(config)


def lowered(function, *args, platforms) -> str:
    """The program for these platforms, as text."""
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), args)
    done = export.export(function, platforms=platforms, disabled_checks=CUDNN)(*shapes)
    assert done.platforms == tuple(platforms)
    return done.mlir_module()


def steps(position: str):
    """(train step, its state and batch), (evaluation step, its parameters and tokens)."""
    config = run_config(position)
    model = models.build(config.model_config(11), config.seed)
    graph, params = models.split(model)
    tokens = jnp.zeros((B, T + 1), jnp.int32)
    batch = {"tokens": tokens, "weights": jnp.ones((B, T))}
    evaluate = jax.jit(lambda params, tokens: token_nll(models.merge(graph, params), tokens))
    train = make_train_step(graph, config)
    return (train, init_state(params, config), batch), (evaluate, params, tokens)


@every_scheme
def test_train_and_evaluation_steps_lower_for_cuda_and_tpu_in_bfloat16(name):
    for function, *args in steps(SPECS.get(name, name)):
        text = lowered(function, *args, platforms=["cuda", "tpu"])
        assert "xbf16>" in text and "cudnn" not in text  # bfloat16, and this machine has no kernel


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As on a machine with a GPU and cuDNN, to the point where something would have to run."""
    from jax._src.cudnn import fused_attention_stablehlo as kernels

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(kernels, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(kernels, "check_compute_capability", lambda wanted: True)


@pytest.mark.parametrize("name", ["rope", pytest.param("yarn", marks=pytest.mark.slow)])
def test_on_a_gpu_rotary_schemes_use_the_fused_kernel_in_both_directions(name, on_a_gpu):
    (train, *args), _ = steps(name)
    text = lowered(train, *args, platforms=["cuda"])
    assert "@__cudnn$fmhaSoftmax(" in text and "@__cudnn$fmhaSoftmaxBackward(" in text


@pytest.mark.parametrize("name", ["alibi", "shaw", "rope+window:size=4", "rope+log_n"])
def test_on_a_gpu_what_a_fused_kernel_does_not_know_stays_with_ours(name, on_a_gpu):
    (train, *args), _ = steps(name)
    text = lowered(train, *args, platforms=["cuda"])
    assert ("cudnn" in text) == (name == "rope+log_n")


@pytest.mark.parametrize(
    "change", ["float32", "segments", "cache", "head size", "wide heads", "narrow values"]
)
def test_the_kernel_is_not_asked_for_what_it_cannot_do(change):
    scheme = models.build(run_config("rope").model_config(11), 0).scheme
    K = {"head size": 12, "wide heads": 136}.get(change, 8)
    q = jnp.zeros((B, T, 2, K), jnp.float32 if change == "float32" else jnp.bfloat16)
    k = jnp.zeros((B, 2 * T if change == "cache" else T, 2, K), q.dtype)
    segments = jnp.zeros((B, T), jnp.int32) if change == "segments" else None
    v = k[..., : K - 4] if change == "narrow values" else k
    assert not attention.fusible(scheme, q, k, v, segments)
    plain = jnp.zeros((B, T, 2, 8), jnp.bfloat16)
    assert attention.fusible(scheme, plain, plain, plain)


def test_what_the_kernel_is_given_is_what_attention_computes(monkeypatch):
    """JAX's own reference stands in for cuDNN: rotations, grouped heads, scale and mask are as ours."""
    from flax import nnx

    import posenc

    scheme = posenc.create(
        "yarn:factor=4", posenc.Dims(D=32, H=4, K=8, train_length=T, G=2), nnx.Rngs(0)
    )
    random = np.random.default_rng(0)
    q = jnp.asarray(random.normal(size=(B, T, 4, 8)), jnp.float32)
    k, v = (jnp.asarray(random.normal(size=(B, T, 2, 8)), jnp.float32) for _ in range(2))
    pos = jnp.arange(T)
    plain = jax.nn.dot_product_attention

    def reference(q, k, v, is_causal, implementation):
        assert implementation == "cudnn"
        return plain(q, k, v, is_causal=is_causal, implementation="xla")

    expected = attention.attend(scheme, q, k, v, pos, pos)
    monkeypatch.setattr(jax.nn, "dot_product_attention", reference)
    found = attention.attend_fused(scheme, q, k, v, pos, pos)
    np.testing.assert_allclose(found, expected, atol=1e-5)
