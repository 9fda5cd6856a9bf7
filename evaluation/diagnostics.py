"""What attention does at each length: figures per layer and head that explain a curve.

They are read off the logits and weights that attention itself uses, after the mask, for the query
rows whose losses `fixed` scores: the last `targets` rows of a window. docs/diagnostics.md says how
to read them.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import models
from evaluation import protocols
from evaluation.angles import positions_in_use, unseen_angles
from evaluation.model import CHUNK_TOKENS, ModelScore, draws, query_rows
from evaluation.records import read_records, replacing
from evaluation.scoring import Undefined
from models.attention import attention_logits
from posenc import Scheme

WINDOWS = 8  # windows a figure is the mean of: attention varies less between them than losses do
FIRST = 4  # first keys of a window: as many sinks as StreamingLLM keeps (Xiao et al. 2024)
FIGURES = ("entropy", "mean_distance", "beyond", "first", "largest_logit")


def diagnose(
    score: ModelScore, trained: models.ModelConfig, tokens: np.ndarray, targets: int
) -> list[dict]:
    """One dict per layer: what its heads do in the windows `tokens` int32 [W, ℓ+1] at length ℓ.

    `trained` is the model as it was trained, which `score` may read under another scheme. Lists
    hold one figure per head; None stands for one that is not finite. Means are over W windows and
    their last `targets` query rows, all inputs of the window being its keys:

    * entropy: −Σ w ln w / ln n over the n keys that a row sees, 0 … 1; rows with one are left out
    * mean_distance: Σ w·distance, in tokens from the row back to the key
    * beyond: Σ w over keys at a distance of train_length or more
    * first: Σ w over the first `FIRST` keys of the window
    * largest_logit: the largest logit of a key that is seen, over all windows and rows
    * unseen_angles: of `evaluation/angles.py`; one number, or None outside the rotary family

    Raises Undefined where the scheme is not defined at ℓ, and for linear attention, which has no
    weights.
    """
    config = score.model.config
    if config.attention == "linear":
        raise Undefined("model.attention=linear has no attention weights to read")
    W, length = tokens.shape[0], tokens.shape[1] - 1
    rows = min(W, max(1, CHUNK_TOKENS // length))
    chunk = jax.ShapeDtypeStruct((rows, length + 1), jnp.int32)
    run = score.program(length, figures_of_last(targets, config.train_length), chunk)
    chunks = []
    for start in range(0, W, rows):
        # the last chunk is filled up with the last window
        chosen = np.minimum(np.arange(start, start + rows), W - 1)
        found = run(score.params, tokens[chosen])
        chunks.append({name: np.asarray(a)[:, : W - start] for name, a in found.items()})
    found = {name: np.concatenate([c[name] for c in chunks], axis=1) for name in chunks[0]}

    before = nnx.eval_shape(lambda: models.build(trained, seed=0))
    now = score.model.at_length(length)
    spans = (
        positions_in_use(before.scheme, trained.train_length),
        positions_in_use(now.scheme, length),
    )
    layers = []
    schemes = zip(before.layer_schemes(), now.layer_schemes(), strict=True)
    for layer, (old, new) in enumerate(schemes):
        several = found["visible"][layer] > 1  # [W, T]; ln 1 = 0 is no measure
        figures = {
            "entropy": mean(found["entropy"][layer][several]),
            **{name: mean(found[name][layer]) for name in ("mean_distance", "beyond", "first")},
            "largest_logit": plain(found["largest_logit"][layer].max(axis=(0, 1))),
        }
        layers.append(
            {"length": length, "train_length": config.train_length, "layer": layer}
            | {name: figures[name] for name in FIGURES}
            | {"unseen_angles": unseen_angles(old, new, *spans)}
            | {"windows": W, "rows": W * targets}
        )
    return layers


@functools.cache  # one function for each pair of numbers: programs are kept by their function
def figures_of_last(targets: int, train_length: int):
    """`row_figures` of the last `targets` rows, as a function of (model, tokens)."""
    return functools.partial(row_figures, targets=targets, train_length=train_length)


def row_figures(
    model: models.Transformer, tokens: jax.Array, targets: int, train_length: int
) -> dict[str, jax.Array]:
    """The figures of each query row: of tokens int32 [B, S+1], float32 [N, B, T, H] by name, and how many
    keys it sees, `visible` int32 [N, B, T]. T = `targets`, the last rows.

    The forward pass is in query blocks, as in scoring, so memory grows with S and not its square.
    """
    inputs = tokens[:, :-1]
    B, S = inputs.shape
    positions = models.row_positions(model.scheme, S, draws(tokens))
    positions = model.scheme.positions(S) if positions is None else positions
    rows = jnp.arange(S - targets, S)
    x = model.embed(inputs, positions)
    layers = []
    for module, names, scheme in zip(
        model.blocks, model.layer_posenc, model.layer_schemes(), strict=True
    ):
        met, q, k, _ = module.attention.operands(module.attention_norm(x), scheme, positions)

        def window(q, k, positions, met=met):  # [T, H, K], [S, G, K], [S]
            one = lambda row: figures_of_row(met, train_length, row[0], row[1], k, positions)
            block = query_rows(model, B, targets, S) or targets
            return jax.lax.map(one, (q, rows), batch_size=block)

        axes = (0, 0, 0 if positions.ndim == 2 else None)
        layers.append(jax.vmap(window, in_axes=axes)(q[:, S - targets :], k, positions))
        shared = {name: model.posenc[name] for name in names}
        x, _ = module(x, shared, positions, None, None, query_rows(model, B, S, S), None)
    return jax.tree.map(lambda *found: jnp.stack(found), *layers)


def figures_of_row(scheme: Scheme, train_length: int, q, row, k, positions) -> dict[str, jax.Array]:
    """The figures float32 [H] of q [H, K], the query row number `row`, against k [S, G, K] at positions [S]."""
    logits, seen = attention_logits(scheme, q[None], k, positions[row][None], positions)
    logits = logits[:, 0]  # [H, S]
    w = jax.nn.softmax(logits, axis=-1)
    keys = jnp.arange(len(positions))
    distance = row - keys  # tokens, also where positions are drawn at random
    visible = jnp.sum(seen)
    # Sums and no products of matrices, whose precision is lower on some accelerators. Keys after
    # the row have a negative distance and a weight of exactly 0.
    weigh = lambda values: jnp.sum(w * values.astype(jnp.float32)[None], axis=1)
    return {
        "entropy": jnp.sum(jax.scipy.special.entr(w), axis=1) / jnp.log(jnp.maximum(visible, 2)),
        "mean_distance": weigh(distance),
        "beyond": weigh(distance >= train_length),
        "first": weigh(keys < FIRST),
        "largest_logit": jnp.max(logits, axis=1),
        "visible": visible,
    }


def windows(
    documents: Sequence[np.ndarray], lengths: list[int], stride: int | None, targets: int
) -> dict[int, np.ndarray]:
    """For each length that a document fills, int32 [W, ℓ+1]: the windows of up to `WINDOWS` blocks of
    `fixed`, spread evenly over all of them and the same at every length.
    """
    sizes = np.array([len(document) for document in documents], np.int64)
    found = {}
    for point in protocols.points(sizes, lengths, "fixed", stride, targets, None):
        if point.plan is not None:
            n = len(point.plan.start)
            chosen = np.linspace(0, n - 1, min(n, WINDOWS)).round().astype(int)
            places = zip(point.plan.document[chosen], point.plan.start[chosen], strict=True)
            text = [documents[d][start : start + point.length + 1] for d, start in places]
            found[point.length] = np.stack(text).astype(np.int32)
    return found


def read_diagnostics(out: Path) -> list[dict]:
    """The rows of OUT/diagnostics.jsonl; none where there is no such file."""
    path = out / "diagnostics.jsonl"
    return read_records(path) if path.exists() else []


def write_diagnostics(out: Path, rows: list[dict]) -> None:
    """OUT/diagnostics.jsonl, one object per run, scheme, length and layer; no file for no rows."""
    path = out / "diagnostics.jsonl"
    if not rows:
        path.unlink(missing_ok=True)
        return
    lines = [json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows]
    with replacing(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def standing(rows: list[dict], records: list[dict]) -> list[dict]:
    """The rows whose fixed record is among `records`: the others' has been measured again."""
    points = {(r["run"], r["scheme"], r["length"]) for r in records if r["protocol"] == "fixed"}
    return [row for row in rows if (row["run"], row["scheme"], row["length"]) in points]


def mean(values: np.ndarray) -> list[float | None]:
    """Over all axes but the last, [H], in float64."""
    values = values.reshape(-1, values.shape[-1]).astype(np.float64)
    return plain(values.mean(axis=0) if len(values) else np.full(values.shape[-1], np.nan))


def plain(values: np.ndarray) -> list[float | None]:
    """As JSON has numbers."""
    return [float(value) if np.isfinite(value) else None for value in values]
