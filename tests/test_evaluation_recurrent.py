"""The protocol `recurrent`: its plan and memory against stubs whose truth is known, and against real
models computed without any cache."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from test_evaluation_protocols import hashed_one, random_documents

import evaluation
import models
from evaluation import Undefined, captions, protocols
from evaluation.model import ModelScore
from evaluation.report import losses
from models.attention import attend_rows

L = 4  # tokens in a segment throughout


class Stub:
    """Its loss is a hash of what stands in the window, memory included, as `hashed_one` reads it."""

    def __init__(self):
        self.asked, self.seen = [], []

    def recurrent(self, length, segment):
        self.asked.append((length, segment))

        def step(state, tokens, fresh):
            assert (
                tokens.dtype == np.int32 and fresh.dtype == bool and fresh.shape == (len(tokens),)
            )
            assert tokens.shape[1] == segment + 1
            self.seen.append(tokens.shape)
            kept = [[] if new else memory for memory, new in zip(state, fresh, strict=True)]
            windows = [[*m, *row] for m, row in zip(kept, tokens.tolist(), strict=True)]
            targets = range(-segment, 0)
            nll = [[hashed_one(w, 0, len(w) + t) for t in targets] for w in windows]
            keep = length - segment
            return np.array(nll), [w[max(0, len(w) - 1 - keep) : -1] for w in windows]

        # memory that must never be used: the first segment of every document is fresh
        return lambda B: [[1000] * (length - segment)] * B, step


def places(documents, length):
    """(document, target, first input of its window, segment) straight from the protocol's text."""
    for d, document in enumerate(documents):
        for t in range(1, len(document)):
            segment = (t - 1) // L
            yield d, t, max(0, segment * L - (length - L)), segment


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("sizes", [(40, 1, 23, 0, 5, 2, 33), (9, 12, 50, 4, 8, 13, 30, 41, 7, 22)])
def test_sweep_equals_the_slow_double_loop(sizes, batch_size):
    documents, score = random_documents(0, sizes), Stub()
    lengths = [11, 4, 8, 24, 3, 60]
    records = evaluation.sweep(
        score, documents, lengths, "recurrent", train_length=L, batch_size=batch_size
    )
    assert [r["length"] for r in records] == lengths
    assert {(r["protocol"], r["stride"]) for r in records} == {("recurrent", L)}
    short, long = records[4:]
    assert short["status"] == "undefined" and "4 or more" in short["reason"]
    assert long["status"] == "insufficient_data" and short["windows"] == long["windows"] == 0
    for record in records[:4]:
        n = record["length"]
        found = list(places(documents, n))
        nll = [hashed_one(documents[d], start, t) for d, t, start, _ in found]
        assert (record["status"], record["tokens_scored"]) == ("ok", len(found))
        assert record["nll_sum"] == pytest.approx(math.fsum(nll), rel=1e-12)
        assert record["windows"] == len({(d, segment) for d, _, _, segment in found})
        assert record["min_context"] == 1
        count = len({d for d, *_ in found})
        blocks = len({(d, segment // math.ceil(n / L)) for d, _, _, segment in found})
        assert record["documents"] == count
        assert record["clusters"] == (f"{count} documents" if count > 7 else f"{blocks} windows")
    # one memory for each length, and one shape for all
    assert score.asked == [(n, L) for n in (11, 4, 8, 24)]
    assert set(score.seen) == {(min(batch_size, count), L + 1)}


def test_targets_are_the_same_at_every_length():
    sizes = np.array([30, 7, 1, 18])
    plans = [protocols.recurrent(sizes, n, L) for n in (4, 8, 9, 16)]
    for plan in plans:
        assert np.array_equal(plan.targets(), plans[0].targets())
        assert np.array_equal(plan.document, plans[0].document)
        # no target's window is longer than ℓ, and full ones are as long as their segment allows
        context = plan.targets() - plan.each_target(plan.start)
        assert context.max() == plan.length


def test_the_guard_sees_a_target_lost(monkeypatch):
    real = np.minimum
    monkeypatch.setattr("evaluation.protocols.np.minimum", lambda a, b: real(a, b) - 1)
    with pytest.raises(RuntimeError, match="exactly once"):
        protocols.recurrent(np.array([30]), 8, L)


def test_rows_read_documents_in_order_and_end_near_one_another():
    plan = protocols.recurrent(np.array([9, 41, 1, 5, 17, 33]), 8, L)
    table = protocols.calls(plan, 3)
    assert sorted(table[table >= 0]) == list(range(len(plan.start)))
    assert len(table) == 10  # as long as the longest document: 10 segments of 41 tokens
    for column in table.T:
        live = column[column >= 0]
        assert np.all(column[: len(live)] >= 0)  # idle only at the end
        for before, after in zip(live, live[1:], strict=False):
            assert after == before + 1 or plan.first[after] == 1
        assert plan.first[live[0]] == 1


def test_what_is_missing_is_named_before_any_work():
    stateless = lambda tokens: tokens[:, 1:]
    with pytest.raises(ValueError, match=r"^score has no method recurrent"):
        evaluation.sweep(stateless, random_documents(0, [50]), [8], "recurrent", train_length=L)
    with pytest.raises(ValueError, match="^train_length is missing"):
        evaluation.sweep(Stub(), random_documents(0, [50]), [8], "recurrent")


@pytest.mark.parametrize(
    "error, status",
    [(MemoryError(), "out_of_memory"), (evaluation.Undefined("no"), "undefined")],
)
def test_trouble_is_a_record_and_progress_still_ends(error, status):
    class Broken(Stub):
        def recurrent(self, length, segment):
            if length == 8:
                raise error
            return super().recurrent(length, segment)

    calls = []
    records = evaluation.sweep(
        Broken(), random_documents(0, [30, 20]), [4, 8, 12], "recurrent", train_length=L,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    assert [r["status"] for r in records] == ["ok", status, "ok"]
    assert calls == sorted(calls) and calls[-1][0] == calls[-1][1]


def test_the_report_and_the_picture_know_every_protocol():
    assert set(protocols.PROTOCOLS) == set(losses.READING) == set(captions.SUBTITLES)


V = 11
CONFIG = models.ModelConfig(
    num_layers=1, d_model=16, num_heads=2, num_kv_heads=1, attention="softmax", latent_size=0,
    rope_size=0, query_latent_size=0, d_ff=16, activation="gelu", dropout=0.0,
    dtype="float32", remat=False, tie_embeddings=True, position="nope", vocab_size=V, train_length=L,
)  # fmt: skip
SCHEMES = (
    "rope", "alibi", "t5:num_buckets=8,max_distance=10", "dynamic_ntk", "transformer_xl", "nope",
    "rope+log_n", "fire", "xpos", "shaw:clip_distance=5", "deberta", "cope", "rope+window:size=5",
)  # fmt: skip


def scorer(position, **changes):
    """A ModelScore of random parameters, the tables that start at zero included."""
    config = dataclasses.replace(CONFIG, position=position, **changes)
    shapes = jax.eval_shape(lambda: models.split(models.build(config, seed=0))[1])
    random = np.random.default_rng(0)
    params = {name: 0.4 * random.standard_normal(a.shape, np.float32) for name, a in shapes.items()}
    params = {name: a + 1 if name.endswith("scale") else a for name, a in params.items()}
    return ModelScore(config, position, {name: jnp.asarray(a) for name, a in params.items()})


def texts(*sizes, seed=0):
    return [text % V for text in random_documents(seed, sizes)]


def read(score, document, length, rows=1):
    """The loss of every target of one document in each of `rows` equal rows, float [rows, n - 1]."""
    initial_state, step = score.recurrent(length, L)
    state, losses = initial_state(rows), []
    for begin in range(0, len(document) - 1, L):
        text = document[begin : begin + L + 1]
        tokens = np.tile(np.pad(text, (0, L + 1 - len(text)), mode="edge"), (rows, 1))
        nll, state = step(state, tokens, np.full(rows, begin == 0))
        losses.append(nll[:, : len(text) - 1])
    return np.concatenate(losses, axis=1)


def nll_of(logits, targets):
    logs = jax.nn.log_softmax(logits)
    return -np.take_along_axis(np.asarray(logs), np.asarray(targets)[:, None], axis=1)[:, 0]


def windows_alone(score, document, length):
    """What one layer must give: a plain forward of each window, since its keys depend on no context."""
    graph = nnx.split(score.model.at_length(length))[0]
    forward = jax.jit(lambda tokens: models.merge(graph, score.params)(tokens))
    losses = []
    for begin in range(0, len(document) - 1, L):
        start, stop = max(0, begin + L - length), min(begin + L, len(document) - 1)
        window = np.zeros((1, length), np.int32)  # what follows the inputs is seen by none of them
        window[0, : stop - start] = document[start:stop]
        logits = forward(window)[0, begin - start : stop - start]
        losses.append(nll_of(logits, document[begin + 1 : stop + 1]))
    return np.concatenate(losses)


QUICK = ("rope", "dynamic_ntk", "transformer_xl", "cope", "rope+window:size=5")


@pytest.mark.parametrize(
    "position", [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in SCHEMES]
)
def test_one_layer_equals_plain_attention_over_the_same_span(position):
    score = scorer(position)
    (document,) = texts(23)
    expected = windows_alone(score, document, 10)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(read(score, document, 10)[0], expected, atol=1e-5)


def layer_by_layer(score, document, length):
    """Any number of layers without a cache: all tokens through a layer, then through the next."""
    graph = nnx.split(score.model.at_length(length))[0]
    return nll_of(
        jax.jit(lambda p: logits_by_layer(models.merge(graph, p), document, length))(score.params),
        document[1:],
    )


def logits_by_layer(model, document, length):
    config = model.config
    n, H, G, K = len(document) - 1, config.num_heads, config.num_kv_heads, config.head_size
    x = model.embedding[...][document[:-1]] * config.d_model**0.5
    for block, names in zip(model.blocks, model.layer_posenc, strict=True):
        scheme = models.transformer.compose(
            {name: model.posenc[name] for name in names} | dict(block.posenc)
        )
        y, mixed = block.attention_norm(x), []
        q = block.attention.query(y).reshape(n, H, K)
        k, v = (f(y).reshape(n, G, K) for f in (block.attention.key, block.attention.value))
        for begin in range(0, n, L):
            start, stop = max(0, begin + L - length), min(begin + L, n)
            place = jnp.arange(stop - start)
            seen = (q[begin:stop], k[start:stop], v[start:stop], place[begin - start :], place)
            mixed.append(attend_rows(scheme, *seen))
        x = x + block.attention.out(jnp.concatenate(mixed).reshape(n, H * K))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    return model.norm(x) @ model.embedding[...].T


@pytest.mark.parametrize(
    "position",
    [
        "dynamic_ntk+log_n",
        pytest.param("transformer_xl", marks=pytest.mark.slow),
        pytest.param("alibi|nope", marks=pytest.mark.slow),
    ],
)
def test_several_layers_equal_the_same_without_a_cache(position):
    score = scorer(position, num_layers=3)
    (document,) = texts(18)
    for length in (7, 12):
        expected = layer_by_layer(score, document, length)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(read(score, document, length)[0], expected, atol=2e-5)


@pytest.mark.parametrize(
    "position",
    ["rope", "learned", "sinusoidal", "alibi", "rope:positions=randomized,max_position=32"],
)
def test_without_memory_it_is_disjoint(position):
    score = scorer(position, num_layers=2)
    documents = texts(23, 9, 1, 14)
    (a,) = evaluation.sweep(score, documents, [L], "recurrent", train_length=L)
    (b,) = evaluation.sweep(score, documents, [L], "disjoint")
    assert a["status"] == b["status"] == "ok"
    assert a["nll_sum"] == pytest.approx(b["nll_sum"], rel=1e-6)
    for name in ("tokens_scored", "windows", "clusters", "min_context", "stride"):
        assert a[name] == b[name]
    assert a["ci_low"] == pytest.approx(b["ci_low"], rel=1e-5)


def test_the_receptive_field_is_longer_than_the_span_and_grows_by_layer():
    (document,) = texts(33)
    for num_layers in (1, 3):
        score = scorer("rope", num_layers=num_layers)
        changed = document.copy()
        changed[0] = (changed[0] + 1) % V
        different = np.abs(read(score, document, 8) - read(score, changed, 8))[0] > 1e-7
        # a layer carries what it sees one segment further: ℓ - L = 4 tokens of memory
        assert np.flatnonzero(different)[-1] < L * (1 + num_layers)
        assert different[L * num_layers : L * (1 + num_layers)].any()


def test_batch_order_and_neighbours_change_nothing(monkeypatch):
    documents = texts(22, 3, 9, 40, 1, 17, 30, 12, 8)
    sums = []
    for order, batch_size, chunk in ((1, 1, 8192), (-1, 4, 8192), (1, 5, 24)):
        monkeypatch.setattr("evaluation.model.CHUNK_TOKENS", chunk)  # 24: two rows at a time
        score = scorer("transformer_xl", num_layers=2)
        (record,) = evaluation.sweep(
            score, documents[::order], [10], "recurrent", train_length=L, batch_size=batch_size
        )
        sums.append([record["nll_sum"], record["ci_low"]])
    alone = sum(read(score, text, 10).sum() for text in documents if len(text) > 1)
    np.testing.assert_allclose([row[0] for row in sums], alone, rtol=1e-6)
    np.testing.assert_allclose(sums[2][1], sums[0][1], rtol=1e-6)


def test_a_fresh_row_forgets_to_the_bit_and_its_neighbour_does_not():
    score = scorer("rope", num_layers=2)
    initial_state, step = score.recurrent(10, L)
    segments = np.stack(texts(5, 5, 5, 5, seed=3))[:, None]  # [4, 1, L + 1]
    pair = lambda a, b: np.concatenate([segments[a], segments[b]])
    _, state = step(initial_state(2), pair(0, 1), np.array([True, True]))
    fresh, _ = step(state, pair(2, 3), np.array([True, False]))
    first, _ = step(initial_state(2), pair(2, 3), np.array([True, True]))
    np.testing.assert_array_equal(fresh[0], first[0])
    assert np.abs(fresh[1] - first[1]).max() > 1e-3
    # not even what is not finite is carried over
    broken = jax.tree.map(lambda a: a * np.nan if a.dtype == np.float32 else a, state)
    again, _ = step(broken, pair(2, 3), np.array([True, False]))
    np.testing.assert_array_equal(again[0], first[0])
    assert np.isnan(again[1]).any()


def test_one_compilation_for_each_length():
    score = scorer("dynamic_ntk")
    evaluation.sweep(score, texts(30, 9, 22), [4, 8, 10], "recurrent", train_length=L, batch_size=2)
    assert set(score.compiled) == {(n, L, 2) for n in (4, 8, 10)}  # for 2 rows


@pytest.mark.parametrize(
    "position, reason",
    [
        ("sinusoidal", "added to the embeddings"),
        ("learned", "added to the embeddings"),
        ("sinusoidal+alibi", "added to the embeddings"),
        ("rope+window:size=5,sinks=2", "sinks=2"),
        ("rope:positions=randomized,max_position=5", "max_position=5"),
    ],
)
def test_undefined_where_a_memory_has_no_meaning(position, reason):
    score = scorer(position)
    records = evaluation.sweep(score, texts(30), [4, 8], "recurrent", train_length=L)
    assert [r["status"] for r in records] == ["ok", "undefined"]
    assert reason in records[1]["reason"]


def test_query_blocks_and_rematerialisation_change_nothing(monkeypatch):
    (document,) = texts(23)
    plain = read(scorer("alibi", num_layers=2), document, 10, rows=2)
    monkeypatch.setattr("evaluation.model.query_rows", lambda *sizes: 3)
    blocks = read(scorer("alibi", num_layers=2, remat=True), document, 10, rows=2)
    np.testing.assert_allclose(blocks, plain, atol=1e-5)


def test_randomised_positions_are_drawn_for_the_whole_span():
    position = "rope:positions=randomized,max_position=16"
    score = scorer(position)
    (document,) = texts(23)
    a, b = read(score, document, 10, rows=3), read(score, document, 10)
    np.testing.assert_allclose(a, np.repeat(b, 3, axis=0), atol=1e-5)


def test_memory_is_cast_as_the_model_computes():
    (document,) = texts(23)
    nll = read(scorer("rope", dtype="bfloat16"), document, 10)
    exact = read(scorer("rope"), document, 10)
    assert nll.dtype == np.float32
    np.testing.assert_allclose(nll, exact, atol=0.3)


def test_linear_attention_has_no_memory():
    config = dataclasses.replace(CONFIG, attention="linear", position="rope")
    score = ModelScore(config, "rope", models.split(models.build(config, seed=0))[1])
    with pytest.raises(Undefined, match="running state"):
        score.recurrent(2 * L, L)
