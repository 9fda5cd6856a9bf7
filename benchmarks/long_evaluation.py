"""The memory that evaluating the demo model takes at long lengths, under every scheme.

    .venv/bin/python benchmarks/long_evaluation.py [--schemes=rope,alibi] [--lengths=65536]
    .venv/bin/python benchmarks/long_evaluation.py --schemes= --run=rope:65536,transformer_xl:16384

The first runs nothing: the compiler says what a window takes. --run reads a window of random bytes,
in a process of its own, and takes the most that was resident. Points go to
docs/long_evaluation.jsonl, in place of older ones like them; docs/build.py makes the tables of
docs/long_evaluation.md from it. Model: configs/base.py.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402 (the root is put on the path above)
import numpy as np  # noqa: E402
from absl import app, flags  # noqa: E402

import models  # noqa: E402
import posenc  # noqa: E402
from configs.base import get_config  # noqa: E402
from evaluation import programs  # noqa: E402
from evaluation.model import ModelScore, token_nll  # noqa: E402
from training.config import RunConfig  # noqa: E402

SCHEMES = flags.DEFINE_list("schemes", list(posenc.SCHEMES), "to compile")
LENGTHS = flags.DEFINE_list("lengths", ["65536"], "tokens")
TOKENIZER = flags.DEFINE_enum("tokenizer", "byte", ["byte", "bpe:4096"], "sets the vocabulary")
RUN = flags.DEFINE_list("run", [], "SCHEME:LENGTH, to read a window of")
CHILD = flags.DEFINE_string("child", "", "SCHEME:LENGTH, to read here and print the record of")

# What a scheme cannot be made without, or its form that is defined at any length.
ONES = "/".join(["1"] * 16)
SPELLED = {
    "learned": "learned:extend=interpolate",
    "longrope": f"longrope:short_factor={ONES},long_factor={ONES}",
    "window": "rope+window:size=64",
}
VOCABULARY = {"byte": 257, "bpe:4096": 4096}
RECORDS = ROOT / "docs" / "long_evaluation.jsonl"
KEY = ("kind", "scheme", "length", "tokenizer")


def scorer(scheme: str) -> ModelScore:
    """The demo model, freshly initialised, under a scheme."""
    position = SPELLED.get(scheme, scheme)
    config = RunConfig.from_config(get_config(position))
    config = config.model_config(vocab_size=VOCABULARY[TOKENIZER.value])
    return ModelScore(config, position, models.split(models.build(config, seed=0))[1])


def shown(scheme: str) -> str:
    """The scheme as it was spelled, but for a long list of ones."""
    return scheme if scheme == "longrope" else SPELLED.get(scheme, scheme)


def compiled(scheme: str, length: int) -> dict:
    """The bytes that the compiler gives one window, and what compiling it took."""
    score = scorer(scheme)
    began, before = time.process_time(), programs.compiled.cache_info().misses
    graph, numbers = programs.general(score.model.at_length(length))
    tokens = jax.ShapeDtypeStruct((1, length + 1), np.int32)
    _, needed = programs.measured(token_nll, graph, score.params | numbers, tokens)
    return {
        "kind": "compiled",
        "scheme": shown(scheme),
        "length": length,
        "tokenizer": TOKENIZER.value,
        "bytes": needed,
        "compilations": programs.compiled.cache_info().misses - before,
        "processor_seconds": round(time.process_time() - began, 1),
    }


def read(scheme: str, length: int) -> dict:
    """One window of random bytes, read once: the peak of this process's resident memory, and the time."""
    score = scorer(scheme)
    run = score.at(length, 1)
    tokens = np.random.default_rng(0).integers(0, 256, (1, length + 1), dtype=np.int32)
    began = (time.process_time(), time.perf_counter())
    np.asarray(run(score.params, tokens))
    spent = (time.process_time() - began[0], time.perf_counter() - began[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "kind": "run",
        "scheme": shown(scheme),
        "length": length,
        "tokenizer": TOKENIZER.value,
        "bytes": peak if sys.platform == "darwin" else 1024 * peak,
        "processor_seconds": round(spent[0], 1),
        "seconds": round(spent[1], 1),
    }


def keep(record: dict) -> None:
    """Put the record in place of an older one like it."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    records = {tuple(r[k] for k in KEY): r for r in map(json.loads, lines)}
    records[tuple(record[k] for k in KEY)] = record
    RECORDS.write_text("".join(json.dumps(r) + "\n" for r in records.values()))


def main(_) -> None:
    if CHILD.value:
        scheme, length = CHILD.value.rsplit(":", 1)
        print(json.dumps(read(scheme, int(length))))
        return
    for scheme in filter(None, SCHEMES.value):
        for length in map(int, filter(None, LENGTHS.value)):
            keep(compiled(scheme, length))
    for point in RUN.value:
        words = [sys.executable, __file__, f"--child={point}", f"--tokenizer={TOKENIZER.value}"]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        keep(json.loads(done.stdout))
    print(f"written to {RECORDS}")


if __name__ == "__main__":
    app.run(main)
