"""Perplexity against length, of one or many runs, under their own position scheme or others.

    python eval_extrapolation.py --runs=runs/rope,runs/alibi --out=runs/report
    python eval_extrapolation.py --runs=runs/rope --schemes=rope,pi,ntk,yarn:factor=8,beta_fast=16 --out=runs/report

Writes OUT/records.jsonl, curves.csv, targets.npz, curves.png, curves.svg and report.html, and
prints the table. The exit status is not 0 if a point ran out of memory, was not finite or failed.
"""

import dataclasses
import re
import sys

from absl import flags

from configs import command

RUNS = flags.DEFINE_string("runs", None, "workdirs of runs, separated by commas")
OUT = flags.DEFINE_string("out", None, "folder for the records, pictures and report")
SCHEMES = flags.DEFINE_string(
    "schemes", "", "read every run under these, such as rope,pi,yarn:factor=8 (default: its own)"
)
LENGTHS = flags.DEFINE_string("lengths", "", "tokens (default: 1, 2, 4, 8, 16 training lengths)")
PROTOCOLS = flags.DEFINE_string("protocols", "fixed", "of fixed, disjoint, sliding, position")
STRIDE = flags.DEFINE_integer("stride", None, "tokens between the windows of fixed and sliding")
TARGETS = flags.DEFINE_integer("targets", 32, "tokens in each scored block of fixed")
CHECKPOINT = flags.DEFINE_string("checkpoint", "latest", "latest, best, or a step")
TEXT = flags.DEFINE_string("text", "", "files to score instead of the run's test documents")
APPEND = flags.DEFINE_boolean("append", False, "add to the records that OUT already holds")

BATCH_SIZE = 32  # windows per call of the model, which divides long ones further
FAILURES = ("out_of_memory", "non_finite", "failed")


@dataclasses.dataclass
class Curve:
    """One curve to measure: a run under one scheme, by one protocol."""

    name: str  # the run as given
    run: object  # training.checkpoint.Run
    scheme: str  # as asked for
    position: str  # the same, completed with the options taken from the run
    protocol: str
    lengths: list[int]
    documents: list


def main() -> int:
    with command.reporting():
        command.require(runs=RUNS.value, out=OUT.value)
        from training.checkpoint import absolute

        out = absolute(OUT.value)
        curves = plan()
        records, details = load_earlier(out, curves) if APPEND.value else ([], {})
        out.mkdir(parents=True, exist_ok=True)
    import evaluation

    for curve in curves:
        measured, targets = measure(curve)
        records += measured
        details.setdefault((curve.name, curve.scheme), {}).update(targets)
        evaluation.write_records(out, records, details)  # what is measured is kept, come what may
    from evaluation.plots import plot_curves
    from evaluation.report import write_report

    plot_curves(records, out)
    write_report(records, out)
    print(evaluation.format_table(records))
    print(f"\n{out}/report.html shows the curves; records.jsonl holds every figure")
    failed = [r for r in records if r["status"] in FAILURES]
    for r in failed:
        print(
            f"{r['run']} {r['scheme']} {r['protocol']} {r['length']}: {r['status']}: {r['reason']}"
        )
    return 1 if failed else 0


def plan() -> list[Curve]:
    """Every curve asked for. ValueError before anything is evaluated: an unreadable run, a scheme that is no swap."""
    import posenc
    from evaluation import arguments
    from training.checkpoint import load_run

    names = [name.strip().rstrip("/") for name in RUNS.value.split(",") if name.strip()]
    protocols = [name.strip() for name in PROTOCOLS.value.split(",") if name.strip()]
    curves = []
    for name in dict.fromkeys(names):
        run = load_run(name, CHECKPOINT.value)
        train_length = run.config.train.length
        lengths = read_lengths(LENGTHS.value) or [train_length * 2**k for k in range(5)]
        trained = posenc.parse_pattern(run.config.position)
        for scheme in split_schemes(SCHEMES.value) or [run.config.position]:
            asked = posenc.parse_pattern(scheme)
            pattern = posenc.swap_pattern(trained, asked, run.model_config.dims)
            position = posenc.format_pattern(pattern)
            dataclasses.replace(run.model_config, position=position)  # refuses what does not fit
            for protocol in protocols:
                arguments.checked(
                    lengths, protocol, STRIDE.value, TARGETS.value, BATCH_SIZE, train_length
                )
                curves.append(Curve(name, run, scheme, position, protocol, lengths, []))
    texts = {}
    for curve in curves:
        if curve.name not in texts:
            texts[curve.name] = read_documents(curve.run)
        curve.documents = texts[curve.name]
    return curves


def read_lengths(text: str) -> list[int]:
    """Sorted, each once. ValueError unless they are positive whole numbers."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    for item in items:
        if not item.isdigit() or int(item) < 1:
            raise ValueError(f"lengths={text}: {item!r} must be a positive whole number")
    return sorted({int(item) for item in items})


def split_schemes(text: str) -> list[str]:
    """A list of specs; an item that starts no scheme (`beta_fast=16`) continues the one before it."""
    specs = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        if specs and re.match(r"\w+=", item):
            specs[-1] += f",{item}"
        else:
            specs.append(item)
    return list(dict.fromkeys(specs))


def read_documents(run) -> list:
    """What is scored: the files of --text in the run's tokens, or the run's test documents."""
    import data

    if TEXT.value:
        texts = data.read_text_documents(TEXT.value, run.config.data.text_column)
        return [run.tokenizer.encode(text) for _, text in texts]
    corpus = data.prepare(run.config.data)
    if corpus.tokenizer.identity() != run.tokenizer.identity():
        raise ValueError(
            f"data.source={run.config.data.source} is not what it was when {run.workdir} was trained: its tokenizer "
            "comes out different; give --text"
        )
    return corpus.test.documents()


def measure(curve: Curve) -> tuple[list[dict], dict]:
    """The records of one curve, and the losses of its fixed targets."""
    from tqdm import tqdm

    import evaluation
    from evaluation.model import ModelScore

    run = curve.run
    score = ModelScore(run.model_config, curve.position, run.params)
    targets = {}
    title = f"{curve.name}  {curve.scheme}  {curve.protocol}"
    quiet = not sys.stderr.isatty()
    with tqdm(desc=title, unit="token", unit_scale=True, disable=quiet, leave=False) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        found = evaluation.sweep(
            score,
            curve.documents,
            curve.lengths,
            protocol=curve.protocol,
            stride=STRIDE.value,
            targets=TARGETS.value,
            batch_size=BATCH_SIZE,
            train_length=run.config.train.length,
            token_bytes=run.tokenizer.token_bytes,
            details=targets,
            progress=advance,
        )
    seconds = sum({(r["length"], r["protocol"]): r["seconds"] for r in found}.values())
    print(f"{title}: {len(found)} records in {seconds:.1f} s", file=sys.stderr, flush=True)
    about = {
        "run": curve.name,
        "scheme": curve.scheme,
        "seed": run.config.seed,
        "step": run.step,
        "train_length": run.config.train.length,
        "config_hash": run.config.hash(),
    }
    return [{**r, **about, "factor": score.factor(r["length"])} for r in found], targets


def load_earlier(out, curves: list[Curve]) -> tuple[list[dict], dict]:
    """The records in OUT that this evaluation does not measure again, with the losses of their targets."""
    from evaluation.records import read_records, read_targets

    if not (out / "records.jsonl").exists():
        return [], {}
    again = {(curve.name, curve.scheme) for curve in curves}
    records = [r for r in read_records(out) if (r["run"], r["scheme"]) not in again]
    details = {key: value for key, value in read_targets(out).items() if key not in again}
    return records, details


if __name__ == "__main__":
    command.run(main)
