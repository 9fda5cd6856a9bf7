"""From a config and a workdir to everything the training loop needs; every refusal happens here."""

import dataclasses
import json
import os
import warnings
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

import data
import models
from training import checkpoint, durable, hosts, lock, mesh, parent, record
from training.config import RunConfig, flat
from training.metrics import last_step
from training.step import State, init_state, make_eval_step

# Words of a parameter's dotted name -> the part of the model it is counted under; the first that
# fits.
PARTS = {
    "position scheme": {"posenc"},
    "norms": {"scale"},
    "feed-forward": {"feed_forward"},
    "attention": {"blocks"},
    "embedding": {"embedding", "head"},
}


@dataclasses.dataclass
class Job:
    """A run about to train: its settings, data, and the state it starts or continues from."""

    workdir: Path
    config: RunConfig
    model_config: models.ModelConfig
    corpus: data.Corpus
    batches: data.Batches
    mesh: Mesh
    graph: nnx.GraphDef
    state: State
    step: int  # optimiser steps already done
    checkpoints: checkpoint.Checkpoints
    record: dict  # config.json

    def save_config(self) -> None:
        """Write config.json, and the tokenizer's merges where it has any."""
        if hosts.is_chief():
            part = self.workdir / "tokenizer.json.part"
            self.corpus.tokenizer.save(part)
            durable.replace(self.workdir / "tokenizer.json", part.read_bytes())
            text = json.dumps(self.record, indent=2) + "\n"
            durable.replace(self.workdir / "config.json", text.encode())


def prepare(given, workdir: Path, init_from: str | None) -> Job:
    """The job that a ConfigDict describes in this workdir. ValueError or OSError says what is wrong, in one line."""
    with hosts.together():
        workdir = checkpoint.absolute(workdir)
        if hosts.is_chief() and workdir.is_dir():
            lock.take(workdir)
        config = RunConfig.from_config(given)
        earlier, before = None, None
        if (workdir / "config.json").exists():
            earlier, before = record.read_record(workdir / "config.json")
        refuse_lost(workdir, before)
        source = None
        if init_from and not earlier:
            source = checkpoint.load_run(init_from)
        if earlier:
            origin = parent.known_again(earlier["parent"], init_from, workdir)
        else:
            origin = parent.describe(source) if source else None
        if origin:
            config = parent.adopt(config, origin)
        if before:
            differences = config.differences(before)
            if differences:
                raise ValueError(
                    f"{workdir} holds a run with other settings: {'; '.join(differences)}. "
                    "Use the earlier values or another workdir"
                )
        devices = mesh.make_mesh(config.mesh, config.train)
        corpus = data.prepare(config.data)
        if all(len(document) < 2 for document in corpus.valid.documents()):
            raise ValueError(
                f"no validation document of {config.data.source} has two tokens: nothing to predict"
            )
        if source:
            parent.check(config, corpus.tokenizer, source)
        if earlier and earlier["tokenizer"] != corpus.tokenizer.identity():
            raise ValueError(
                f"{workdir} was trained with another tokenizer than {config.data} gives now"
            )
        if earlier and not corpus.is_text_of(earlier["corpus"]):
            raise ValueError(
                f"the text of data.source={config.data.source} is not what {workdir} was trained on"
            )
        train = config.train
        batches = data.Batches(
            corpus.train,
            train.length,
            train.batch_size,
            config.seed,
            config.data.isolate_documents,
            data.weights_of(config.data.source),
        )
    hosts.require_alike(what_must_be_alike(config, corpus, workdir))
    model_config = config.model_config(corpus.tokenizer.vocab_size)
    require_memory(model_config)
    model = models.build(model_config, config.seed)
    graph, params = models.split(model)
    workdir.mkdir(parents=True, exist_ok=True)
    with hosts.together():
        if hosts.is_chief():
            lock.take(workdir)
        if not earlier and (workdir / "config.json").exists():
            raise ValueError(f"another run was begun in {workdir} just now; name another workdir")
    checkpoints = checkpoint.Checkpoints(workdir, train.keep)
    fresh = init_state(params, config)
    sharding = mesh.state_sharding(devices, fresh)
    state = checkpoints.restore_newest(fresh, sharding)
    if state is None:
        if origin:  # also where a child stopped before its first checkpoint
            source = source or parent.read_again(origin, workdir)
            fresh = init_state(source.params, config)
        state = mesh.put_state(fresh, sharding)
    return Job(
        workdir=workdir,
        config=config,
        model_config=model_config,
        corpus=corpus,
        batches=batches,
        mesh=devices,
        graph=graph,
        state=state,
        step=int(state["step"]),
        checkpoints=checkpoints,
        record=record.make_record(config, corpus, origin),
    )


def require_memory(c: models.ModelConfig) -> None:
    """Refuse a model that this host could not hold once in float32, before any of it is made."""
    least = c.num_layers * c.d_model * (c.d_model + 2 * c.d_ff) + c.vocab_size * c.d_model
    held = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * least > held:
        raise ValueError(
            f"model.num_layers={c.num_layers}, d_model={c.d_model} and d_ff={c.d_ff} make {least:,} parameters or "
            f"more, {4 * least / 2**30:,.0f} GiB; this machine has {held / 2**30:,.0f} GiB"
        )


def what_must_be_alike(config: RunConfig, corpus: data.Corpus, workdir: Path) -> dict[str, object]:
    """What every process of a run must be given alike, by name: all but where it keeps its token files."""
    settings = flat(config.to_dict())
    del settings["data.cache_dir"]
    found = sorted(folder.name for folder in checkpoint.step_folders(workdir))
    return {
        **settings,
        "the text": corpus.meta["key"],
        "workdir": str(workdir),
        "the checkpoints in workdir": found,
    }


def refuse_lost(workdir: Path, before: RunConfig | None) -> None:
    """ValueError where a run was trained whose config.json (`before`) or checkpoints are no longer there.

    One that was ended before its first checkpoint begins again, and says so.
    """
    folder = workdir / "checkpoints"
    saved, last = checkpoint.step_folders(workdir), last_step(workdir / "metrics.jsonl")
    if not before and (saved or last):
        found = "checkpoints" if saved else "metrics.jsonl"
        raise ValueError(f"{workdir} holds {found} without config.json; name another workdir")
    if saved or not last:
        return
    c = before.train
    # A save is begun when the one before it is on disk.
    saved = c.save_every and last > 2 * c.save_every
    ended = last >= min(c.steps, c.stop_at or c.steps) and not list(folder.glob("*-tmp"))
    if saved or ended or not folder.exists():
        raise ValueError(
            f"metrics.jsonl in {workdir} reaches step {last}, but there is no checkpoint in {folder}: "
            "put them back, name another workdir, or remove metrics.jsonl to train from the start"
        )
    warnings.warn(
        f"{workdir} was ended at step {last}, before its first checkpoint, and begins again",
        stacklevel=2,
    )


def make_validation(job: Job):
    """params -> mean nll of the validation targets, nats per token.

    They stand in windows of the training length: all of them, or eval_windows spread over the
    documents.
    """
    c = job.config.train
    tokens, weights = data.disjoint_windows(job.corpus.valid.documents(), c.length)
    weigh = data.weights_of(job.config.data.valid_source or job.config.data.source)
    weights = weights * weigh(tokens) if weigh else weights
    if c.eval_windows and c.eval_windows < len(tokens):
        chosen = np.linspace(0, len(tokens) - 1, c.eval_windows).round().astype(int)
        tokens, weights = tokens[chosen], weights[chosen]
    targets = float(weights.sum())
    filler = -len(tokens) % c.batch_size  # rows that repeat the first, with weight 0
    tokens = np.concatenate([tokens, np.repeat(tokens[:1], filler, axis=0)])
    weights = np.concatenate([weights, np.zeros((filler, c.length), np.float32)])
    rows = mesh.batch_rows(job.mesh, c.batch_size)

    def read(first: int) -> mesh.Rows:
        """This process's rows of the batch that begins with window `first`."""
        arrays = {"tokens": tokens, "weights": weights}
        return mesh.read_rows(
            rows, lambda a, b: {name: x[first + a : first + b] for name, x in arrays.items()}
        )

    batches = [read(first) for first in range(0, len(tokens), c.batch_size)]
    loss = make_eval_step(job.graph)
    split = job.mesh.shape["fsdp"] > 1
    eval_step = jax.jit(lambda p, b: loss(mesh.gathered(job.mesh, p), b)) if split else loss

    def validate(params: models.Params) -> float:
        sums = [eval_step(params, mesh.put_batch(job.mesh, batch)) for batch in batches]
        return sum(map(float, sums)) / targets

    return validate


def summary(job: Job) -> str:
    """What is about to happen, for a person: devices, parameters by part, tokens per step, data source."""
    c = job.config
    parts: dict[str, int] = {}
    for name, array in job.state["params"].items():
        part = next(part for part, words in PARTS.items() if words & set(name.split(".")))
        parts[part] = parts.get(part, 0) + array.size
    listed = ", ".join(f"{part} {count:,}" for part, count in parts.items())
    kinds = sorted({device.device_kind for device in job.mesh.devices.flat})
    return "\n".join(
        [
            f"position    {c.position}",
            f"devices     {job.mesh.size} x {', '.join(kinds)}, data {job.mesh.shape['data']}, "
            f"fsdp {job.mesh.shape['fsdp']}"
            + (f", of {jax.process_count()} processes" if jax.process_count() > 1 else ""),
            f"parameters  {sum(parts.values()):,} ({listed})",
            f"data        {job.corpus.source}; {job.corpus.train.num_tokens:,} training tokens "
            f"({job.corpus.tokenizer.name}, {job.corpus.tokenizer.vocab_size} ids)",
            f"step        {c.train.batch_size} windows of {c.train.length} = "
            f"{c.train.batch_size * c.train.length:,} tokens; {c.train.steps:,} steps = "
            f"{c.train.steps * c.train.batch_size / job.batches.windows_per_epoch:.3g} epochs",
        ]
    )
