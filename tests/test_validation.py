"""The validation loss, against one counted target after another."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_training_step import V, run_config

import models
from data import tasks
from training import mesh, setup

T = 8
# Windows of 8 targets: three, the last of them short, two, and one of 4; together six.
DOCUMENTS = [
    np.random.default_rng(i).integers(0, V, n).astype(np.int32)
    for i, n in ((0, 20), (1, 17), (2, 5))
]


def job_of(documents=DOCUMENTS, vocab_size=V, **changes):
    """What make_validation reads of a job, and the parameters of its model."""
    config = run_config(train__batch_size=4, mesh__data=1, **changes)
    graph, params = models.split(models.build(config.model_config(vocab_size), 0))
    valid = types.SimpleNamespace(documents=lambda: documents)
    job = types.SimpleNamespace(
        config=config,
        corpus=types.SimpleNamespace(valid=valid),
        mesh=mesh.make_mesh(config.mesh, config.train),
        graph=graph,
    )
    return job, params


def windows_of(documents):
    """tokens [n, T + 1] padded with 0, and the targets of each window that count, [n]."""
    rows, counts = [], []
    for document in documents:
        for start in range(0, len(document) - 1, T):
            window = document[start : start + T + 1]
            counts.append(len(window) - 1)
            rows.append(np.pad(window, (0, T + 1 - len(window))))
    return np.stack(rows), counts


def nll_of(job, params, tokens):
    """Float64 [n, T] of tokens [n, T + 1], without dropout."""
    run = jax.jit(lambda params, tokens: models.merge(job.graph, params)(tokens))
    logits = np.asarray(run(params, jnp.asarray(tokens[:, :-1])), np.float64)
    chosen = np.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    return np.log(np.exp(logits).sum(axis=-1)) - chosen


def test_the_mean_is_over_the_targets_that_count_and_without_dropout():
    """Fillers of windows and of the last batch count neither above nor below the line."""
    tokens, counts = windows_of(DOCUMENTS)
    assert counts == [8, 8, 3, 8, 8, 4]
    for changes in ({"train__eval_windows": 0}, {"train__eval_windows": 6}):
        job, params = job_of(model__dropout=0.5, **changes)
        nll = nll_of(job, params, tokens)
        expected = sum(row[:count].sum() for row, count in zip(nll, counts, strict=True)) / 39
        assert setup.make_validation(job)(params) == pytest.approx(expected, rel=1e-5)


def test_few_windows_are_spread_over_the_documents():
    """Three of six are the first, the last, and one between: 0, 2 (2.5 is rounded to even) and 5."""
    job, params = job_of(train__eval_windows=3)
    tokens, counts = windows_of(DOCUMENTS)
    nll = nll_of(job, params, tokens)
    chosen = [nll[i][: counts[i]] for i in (0, 2, 5)]
    expected = np.concatenate(chosen).mean()
    assert setup.make_validation(job)(params) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("field", ["source", "valid_source"])
def test_of_a_task_the_answers_alone_are_validated(field):
    """What a model cannot know, the letters to be copied, would drown what it can."""
    sources = {"data__source": "synthetic:copy:16" if field == "source" else "synthetic:periodic"}
    sources |= {"data__valid_source": "" if field == "source" else "synthetic:copy:16"}
    documents = [
        np.frombuffer(tasks.training_document("copy", 16, i), np.uint8).astype(np.int32)
        for i in range(5)
    ]
    job, params = job_of(documents, 257, train__length=16, train__eval_windows=0, **sources)
    tokens = np.stack([np.pad(document, (0, 17 - len(document))) for document in documents])
    answers = []
    for document, nll in zip(documents, nll_of(job, params, tokens), strict=True):
        text = bytes(document.astype(np.uint8))
        first = text.rindex(b"|") + 1
        last = len(text.rstrip(b"\n"))
        answers += list(nll[first - 1 : last - 1])  # target t is token t + 1
    assert len(answers) == 3 + 4 + 5 + 7 + 4
    expected = np.mean(answers)
    assert setup.make_validation(job)(params) == pytest.approx(expected, rel=1e-5)
