"""Our curve beside the same curve by Hugging Face transformers, on the same weights: do losses agree, and how long.

    .venv/bin/python train.py --config=configs/rope.py --workdir=runs/rope
    .venv/bin/python benchmarks/evaluation_speed.py --run=runs/rope [--peers=OTHER/bin/python]

The curve of `fixed`, its cropped targets included, read as RoPE, PI, NTK and YaRN: by ours, and by
transformers' Llama without gradients, asked for the logits of the targets alone. The two take turns
at each point, several times: seconds are medians, ratios those of the same turn. Writes
docs/performance/evaluation_speed.jsonl; docs/build.py makes the table of docs/performance.md from it.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from absl import app, flags
from records import write

RUN = flags.DEFINE_string("run", None, "workdir of a RoPE run with the base model", required=True)
PEERS_PYTHON = flags.DEFINE_string("peers", sys.executable, "the Python that has transformers")
BLOCKS = flags.DEFINE_integer("blocks", 64, "windows of each length, spread over the test text")

SCHEMES = ("rope", "pi", "ntk", "yarn")
TARGETS = 32
REPEATS = 3
ROWS = 32  # windows given at once, as eval_extrapolation.py does


def main(_) -> None:
    import data
    from evaluation.model import CHUNK_TOKENS, ModelScore, last_nll
    from training.checkpoint import load_run

    run = load_run(RUN.value)
    L = run.config.train.length
    documents = data.prepare(run.config.data).test.documents()
    ends = block_ends(documents, L * 16, BLOCKS.value)
    fixed = [("fixed", L * 2**k, TARGETS, ends) for k in range(5)]
    alone = [(d, end - back) for d, end in ends for back in range(TARGETS)]
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "weights.npz", **llama_weights(run.params))
        command = [PEERS_PYTHON.value, str(Path(__file__).with_name("llama_worker.py")), folder]
        peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        records = []
        for scheme in SCHEMES:
            score = ModelScore(run.model_config, scheme, run.params)
            for protocol, length, scored, chosen in [*fixed, ("cropped", L, 1, alone)]:
                windows = np.stack([documents[d][end - length : end + 1] for d, end in chosen])
                np.save(Path(folder) / "windows.npy", windows)
                began = time.perf_counter()
                at_once = min(ROWS, max(1, CHUNK_TOKENS // length))
                score.at(length, at_once, last_nll(TARGETS))  # compiles it, if nothing has before
                compiling = time.perf_counter() - began
                rows, seconds, theirs = range(0, len(windows), ROWS), [], []
                for _ in range(REPEATS):
                    began = time.perf_counter()
                    ours = [score.last(windows[i : i + ROWS], TARGETS)[:, -scored:] for i in rows]
                    seconds.append(time.perf_counter() - began)
                    peer.stdin.write(f"{scheme} {length} {L} {ROWS} {scored}\n")
                    peer.stdin.flush()
                    theirs.append(float(peer.stdout.readline()))
                nll = np.load(Path(folder) / "nll.npy")
                records.append(
                    {
                        "scheme": scheme,
                        "protocol": protocol,
                        "length": length,
                        "windows": len(windows),
                        "nll": round(float(np.mean(np.concatenate(ours))), 6),
                        "nll_transformers": round(float(nll.mean()), 6),
                        "largest_difference": float(np.abs(np.concatenate(ours) - nll).max()),
                        "seconds": round(statistics.median(seconds), 3),
                        "seconds_compiling": round(compiling, 3),
                        "seconds_transformers": round(statistics.median(theirs), 3),
                        "ratio": round(
                            statistics.median(a / b for a, b in zip(seconds, theirs, strict=True)),
                            3,
                        ),
                    }
                )
        peer.communicate()
    theirs = sum(r["seconds_transformers"] for r in records)
    compiled = sum(r["seconds"] for r in records)
    whole = compiled + sum(r["seconds_compiling"] for r in records)
    ratios = {
        "ratio_of_sweeps": round(compiled / theirs, 3),
        "ratio_with_compiling": round(whole / theirs, 3),
    }
    write("evaluation_speed", [r | ratios for r in records])


def block_ends(documents: list, longest: int, blocks: int) -> list[tuple[int, int]]:
    """(document, index of a block's last target), spread evenly over all that have the longest context."""
    ends = [
        (d, end) for d, text in enumerate(documents) for end in range(longest, len(text), TARGETS)
    ]
    chosen = np.linspace(0, len(ends) - 1, min(blocks, len(ends))).round().astype(int)
    return [ends[i] for i in chosen]


def llama_weights(params: dict) -> dict[str, np.ndarray]:
    """The parameters as transformers' Llama has them, whose dense kernels are [outputs, inputs].

    Llama does not scale its embeddings, and its output matrix is then another.
    """
    layer = {
        "attention_norm.scale": "input_layernorm.weight",
        "attention.query.kernel": "self_attn.q_proj.weight",
        "attention.key.kernel": "self_attn.k_proj.weight",
        "attention.value.kernel": "self_attn.v_proj.weight",
        "attention.out.kernel": "self_attn.o_proj.weight",
        "feed_forward_norm.scale": "post_attention_layernorm.weight",
        "feed_forward.gate.kernel": "mlp.gate_proj.weight",
        "feed_forward.up.kernel": "mlp.up_proj.weight",
        "feed_forward.down.kernel": "mlp.down_proj.weight",
    }
    embedding = np.asarray(params["embedding"])
    found = {
        "model.embed_tokens.weight": embedding * embedding.shape[1] ** 0.5,
        "lm_head.weight": embedding,
        "model.norm.weight": np.asarray(params["norm.scale"]),
    }
    for name, value in params.items():
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            found[f"model.layers.{number}.{layer[rest]}"] = np.asarray(value).T
    return found


if __name__ == "__main__":
    app.run(main)
