"""Each setting that is there to save memory saves it in the compiled program, as users' XLA compiles it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def compiled(expression: str):
    """What an expression over benchmarks/train_memory.py gives, without the settings of the tests."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment = {k: v for k, v in environment.items() if not k.startswith("JAX_")}
    program = f"import json, train_memory; print(json.dumps(train_memory.{expression}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT / "benchmarks",
        env={**environment, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_every_setting_saves_what_it_should():
    found = compiled("by_setting()")
    none = found.pop("none")
    # Four layers: recomputed, one is held at a time. Four rounds: a quarter of the activations.
    # Eight devices: an eighth of the rows and of the state, and the parameters put together.
    most = {"model.remat=True": 0.4, "train.accumulate=4": 0.35, "mesh.fsdp=8": 0.2}
    assert set(found) == set(most)
    for name, share in most.items():
        assert found[name]["temporaries"] < share * none["temporaries"], name
    assert found["mesh.fsdp=8"]["arguments"] < 0.14 * none["arguments"]


@pytest.mark.slow
@pytest.mark.parametrize("position", ["rope", "t5"])
def test_a_large_step_stays_within_its_memory(position):
    """123 M parameters, 8 windows of 2,048 tokens: neither all logits nor all layers at once."""
    assert compiled(f"large({position!r}, 2048)")["temporaries"] < 2.5 * 1024
