"""Every named config: what it sets is written down, it builds, and it takes a step."""

import importlib
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import models
import posenc
from configs import base
from training.config import RunConfig, flat
from training.step import init_state, make_train_step

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden_configs.json"
NAMES = sorted(
    path.stem for path in (ROOT / "configs").glob("*.py") if path.stem not in ("command", "streams")
)


def load(name):
    return importlib.import_module(f"configs.{name}").get_config()


def settings(name):
    return flat(RunConfig.from_config(load(name)).to_dict())


def test_what_each_config_sets_is_as_written_down():
    """Drift shows in review: LENGTHWISE_UPDATE=1 pytest tests/test_configs.py writes the file anew."""
    plain = settings("base")
    found = {"base": plain}
    for name in NAMES:
        mine = settings(name)
        found[name] = {key: mine[key] for key in mine if mine[key] != plain[key]}
    found["base"] = plain
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("LENGTHWISE_UPDATE"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), (
        "if meant so: LENGTHWISE_UPDATE=1 pytest tests/test_configs.py"
    )


def test_every_scheme_has_a_config_that_says_how_to_run_it():
    for name in posenc.SCHEMES:
        module = importlib.import_module(f"configs.{name}")
        position = RunConfig.from_config(module.get_config()).position
        assert position.split("+")[0].split(":")[0] in (name, "rope"), position
        assert f"--config=configs/{name}.py" in module.__doc__
        assert "Expected" in module.__doc__


QUICK = {"base", "smoke", "rope", "learned", "pi", "latent", "linear", "local_global"}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_every_config_builds_and_takes_a_step(name):
    config = load(name)
    if "|" not in config.position:
        config.model.num_layers = 1  # the layers are alike: one is enough to see that they fit
    config.train.batch_size = 2
    config = RunConfig.from_config(config)
    T = min(config.train.length, 32)
    model = models.build(config.model_config(257), config.seed)
    graph, params = models.split(model)
    state = init_state(params, config)
    tokens = np.random.default_rng(0).integers(0, 257, (2, T + 1), dtype=np.int32)
    batch = {"tokens": tokens, "weights": np.ones((2, T), np.float32)}
    before = jax.tree.map(np.array, state["params"])
    state, metrics = make_train_step(graph, config)(state, batch)
    assert metrics["finite"] and 4 < metrics["loss"] < 25
    for name, p in state["params"].items():
        assert (p != before[name]).any(), f"{name} did not move"


def test_base_shows_every_field():
    config = RunConfig.from_config(base.get_config()).to_dict()
    for section in ("model", "data", "train", "mesh"):
        assert config[section].keys() == set(base.get_config()[section].keys())
