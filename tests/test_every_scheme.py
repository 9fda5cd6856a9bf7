"""Every name trains, and is evaluated to 16 times its training length."""

import numpy as np
import pytest
from test_models import SPELLED
from test_train import tiny

import evaluation
import models
import posenc
from evaluation.model import ModelScore
from training.config import RunConfig
from training.step import init_state, make_train_step

L = 16
EVERY = [*posenc.SCHEMES, "rope|rope|rope|nope", "rope+window:size=8,sinks=2,streaming=true"]
QUICK = ("learned", "rope", "t5", "cope")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EVERY]
)
def test_trains_and_is_evaluated_to_sixteen_times_its_length(name, tmp_path):
    position = {**SPELLED, "longrope": "longrope:short_factor=1/1/1/1,long_factor=2/4/8/16"}
    given = tiny(tmp_path, position.get(name, name), steps=30, length=L)
    given.model.num_layers = 4 if "|" in name else 1
    config = RunConfig.from_config(given)
    model_config = config.model_config(vocab_size=7)
    graph, params = models.split(models.build(model_config, 0))
    state, step = init_state(params, config), make_train_step(graph, config)
    cycle = np.arange(8 * L) % 7  # what follows is always one more, modulo 7
    losses = []
    for i in range(30):
        tokens = np.stack([cycle[(i + b) % 7 :][: L + 1] for b in range(8)]).astype(np.int32)
        state, metrics = step(state, {"tokens": tokens, "weights": np.ones((8, L), np.float32)})
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.6 * losses[0]
    score = ModelScore(model_config, config.position, state["params"])
    documents = [np.arange(20 * L, dtype=np.int32) % 7]
    lengths = [L, 16 * L]
    found = evaluation.sweep(score, documents, lengths, targets=L, train_length=L, batch_size=2)
    expected = ["ok", "undefined" if name == "learned" else "ok", "ok"]
    assert [r["status"] for r in found] == expected, [r["reason"] for r in found]
    assert found[0]["nll"] < 1
