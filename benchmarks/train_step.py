"""Our training step beside those of PyTorch libraries, and the share of the machine's matrix rate that it reaches.

    .venv/bin/python -m pip install -r benchmarks/requirements.txt     # the peers, once; or in another environment
    .venv/bin/python benchmarks/train_step.py [--peers=OTHER/bin/python] [--steps=40] [--windows=32]

Writes docs/performance/train_step.jsonl; docs/build.py makes the table of docs/performance.md from it.
"""

import time

import lockstep
import numpy as np
from absl import app, flags
from contestants import PEERS, VOCABULARY
from records import write

STEPS = flags.DEFINE_integer("steps", 40, "timed steps of each")
WINDOWS = flags.DEFINE_integer("windows", 32, "windows of 128 tokens in a step")
PEERS_PYTHON = flags.DEFINE_string("peers", "", "the Python that has the peers (default: this one)")

LENGTH = 128
OURS = ("rope", "alibi", "sinusoidal", "t5")
REFERENCE = "ours:rope"


def matmul_rate() -> float:
    """Floating-point operations a second of this machine in a large float32 product, the median of several."""
    import jax
    import jax.numpy as jnp

    n = 2048
    a = jnp.asarray(np.random.default_rng(0).normal(size=(n, n)), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    seconds = []
    for _ in range(15):
        began = time.perf_counter()
        product(a, a).block_until_ready()
        seconds.append(time.perf_counter() - began)
    return 2 * n**3 / float(np.median(seconds))


def model_flops() -> float:
    """Of one step: three times the products of the forward pass (forward, and twice that backward)."""
    D, F, N, T = 128, 344, 4, LENGTH
    dense = N * (4 * D * D + 3 * D * F) + D * VOCABULARY
    return 3 * WINDOWS.value * T * 2 * (dense + N * 2 * D * T)  # attention over all T keys


def main(_) -> None:
    names = [f"ours:{name}" for name in OURS] + list(PEERS)
    arguments = [str(LENGTH), str(WINDOWS.value)]
    before = matmul_rate()
    seconds = lockstep.race(names, arguments, STEPS.value, PEERS_PYTHON.value)
    rate = (before + matmul_rate()) / 2
    records = lockstep.compare(seconds, REFERENCE)
    for record in records:
        if record["name"].startswith("ours"):
            share = model_flops() / (record["median_ms"] / 1e3) / rate
            record["share_of_matmul_rate"] = round(share, 3)
    about = {"tokens": LENGTH * WINDOWS.value, "matmul_gflops": round(rate / 1e9)}
    write("train_step", [{**record, **about} for record in records])


if __name__ == "__main__":
    app.run(main)
