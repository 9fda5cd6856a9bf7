"""Perplexity against length, of one or many runs, under their own position scheme or others.

    python eval_extrapolation.py --runs=runs/rope,runs/alibi --out=runs/report
    python eval_extrapolation.py --runs=runs/rope --schemes=rope,pi,ntk,yarn:factor=8,beta_fast=16 --out=runs/report

Writes OUT/records.jsonl, curves.csv, targets.npz, statistics.jsonl, curves.png, curves.svg and
report.html, with --diagnostics also diagnostics.jsonl, and prints the table. Every point is on disk
when it is finished; with --append those that OUT holds already are not measured again. The exit
status is not 0 if a point ran out of memory, was not finite or failed.
"""

import contextlib
import os
import signal
import sys

from absl import flags

from configs import command

RUNS = flags.DEFINE_string("runs", None, "workdirs of runs, separated by commas")
OUT = flags.DEFINE_string("out", None, "folder for the records, pictures and report")
SCHEMES = flags.DEFINE_string(
    "schemes", None, "read every run under these, such as rope,pi,yarn:factor=8 (default: its own)"
)
LENGTHS = flags.DEFINE_string("lengths", None, "tokens (default: 1, 2, 4, 8, 16 training lengths)")
PROTOCOLS = flags.DEFINE_string(
    "protocols", "fixed", "of fixed, disjoint, sliding, position, recurrent, and probe:TASK"
)
STRIDE = flags.DEFINE_integer(
    "stride", None, "tokens between the windows of fixed and sliding", lower_bound=1
)
TARGETS = flags.DEFINE_integer(
    "targets",
    None,
    "tokens in each scored block of fixed (default: 32, or the shortest length)",
    lower_bound=1,
)
CHECKPOINT = flags.DEFINE_string("checkpoint", "latest", "latest, best, or a step")
TEXT = flags.DEFINE_string("text", None, "files to score instead of the run's test documents")
DIAGNOSTICS = flags.DEFINE_boolean(
    "diagnostics",
    False,
    "also write what attention does at each length of fixed: diagnostics.jsonl",
)
APPEND = flags.DEFINE_boolean(
    "append", False, "add to the records that OUT already holds; what was measured before is kept"
)

FAILURES = ("out_of_memory", "non_finite", "failed")


def main() -> int:
    with contextlib.ExitStack() as stack:
        with command.reporting():
            command.require(runs=RUNS.value, out=OUT.value)
            from evaluation import collection, sharing
            from training.checkpoint import absolute

            out = absolute(OUT.value)
            tasks = plan()
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(sharing.at_work(out, alone=not APPEND.value))
            found = collection.Collection(out, keep=APPEND.value)
            if found.replaced:
                print(
                    f"note: {out} holds an earlier evaluation, which this one replaces; "
                    "--append keeps it",
                    file=sys.stderr,
                )
        with command.reporting((collection.NotWritten,)):
            return evaluate(tasks, found)


def evaluate(tasks: list, found) -> int:
    """Measure, draw and print; the exit status."""
    import evaluation
    from evaluation import collection, measuring

    interrupted = False
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on there is much to save
    try:
        for task in tasks:
            measuring.measure(task, found)
            if DIAGNOSTICS.value and task.protocol == "fixed":
                measuring.diagnose(task, found)
    except KeyboardInterrupt:
        interrupted = True  # what is measured is still drawn
        found.write()
    with collection.writing(found.out):
        records, targets, _ = found.read()
        if not records:
            return 130
        draw(records, targets, found.out)
    print(evaluation.format_table(records), end="")
    print(f"\n{found.out}/report.html shows it all; records.jsonl holds every figure")
    if interrupted:
        print("interrupted: what was measured before is written", file=sys.stderr)
        return 130
    return int(any(status in FAILURES for status in found.statuses))


def draw(records: list[dict], targets: dict, out) -> None:
    """What is made of all records: statistics.jsonl, the pictures, and the report of everything."""
    import evaluation
    from evaluation.plots import plot_curves
    from evaluation.probe_plot import plot_probes
    from evaluation.probes import is_probe
    from evaluation.report import write_report

    losses = [r for r in records if not is_probe(r)]
    statistics = evaluation.compare(losses, targets)
    evaluation.write_statistics(out, statistics)
    if losses:
        plot_curves(losses, out, statistics)
    plot_probes([r for r in records if is_probe(r)], out)
    write_report(records, out)
    for name in () if losses else ("curves.png", "curves.svg"):
        (out / name).unlink(missing_ok=True)  # of an earlier evaluation, or empty


def plan() -> list:
    """Every curve asked for. ValueError before anything is evaluated: an unreadable run, a scheme that is no swap."""
    import posenc
    from evaluation import arguments, measuring
    from evaluation.model import ModelScore
    from evaluation.probes import PREFIX, task_name
    from training.checkpoint import load_run

    names = arguments.split_list("runs", RUNS.value)
    protocols = arguments.split_list("protocols", PROTOCOLS.value)
    lengths = None if LENGTHS.value is None else arguments.read_lengths(LENGTHS.value)
    schemes = None if SCHEMES.value is None else arguments.split_schemes(SCHEMES.value)
    for name, value in (("checkpoint", CHECKPOINT.value), ("text", TEXT.value)):
        if value is not None and not value.strip():
            raise ValueError(f"--{name}= is empty: leave it out for the default")
    if DIAGNOSTICS.value and "fixed" not in protocols:
        raise ValueError(
            f"protocols={PROTOCOLS.value}: --diagnostics reads the windows of fixed; add it"
        )
    runs = {}  # by folder: ./a and a are one run
    for name in names:
        name = os.path.normpath(name)  # ./a, a and a/ are one run in the records, too
        run = load_run(name, CHECKPOINT.value)
        runs.setdefault(run.workdir, (name, run))
    tasks = []
    for name, run in runs.values():
        if run.step < run.config.train.steps and CHECKPOINT.value == "latest":
            print(
                f"note: {name} is at step {run.step} of {run.config.train.steps}", file=sys.stderr
            )
        train_length = run.config.train.length
        mine = lengths or [train_length * 2**k for k in range(5)]
        targets = min(32, *mine) if TARGETS.value is None else TARGETS.value
        about = {
            "run": name,
            "seed": run.config.seed,
            "step": run.step,
            "train_length": train_length,
            "config_hash": run.config.hash(),
            "weights": measuring.weights_fingerprint(run.params),
        }
        trained = posenc.parse_pattern(run.config.position)
        for scheme in schemes or [run.config.position]:
            asked = posenc.parse_pattern(scheme)
            pattern = posenc.swap_pattern(trained, asked, run.model_config.dims)
            position = posenc.format_pattern(pattern)
            tell_idle(scheme, position, run.model_config, max(mine))
            score = ModelScore(run.model_config, position, run.params)
            if "position" in protocols:
                tell_one_pass(scheme, score)
            for protocol in protocols:
                if protocol.startswith(PREFIX):
                    task_name(protocol, run.tokenizer)
                else:
                    arguments.checked(
                        mine, protocol, STRIDE.value, targets, measuring.BATCH_SIZE, train_length
                    )
                about = about | {"scheme": scheme}
                to = (run.model_config, run.tokenizer, score, protocol, mine, STRIDE.value, targets)
                tasks.append(measuring.Task(about, *to))
    tell_unused(protocols)
    for name, run in runs.values():
        mine = [task for task in tasks if task.about["run"] == name]
        mine = [task for task in mine if not task.protocol.startswith(PREFIX)]
        if mine:
            documents = read_documents(run)
            text = measuring.text_fingerprint(documents)
        for task in mine:
            task.read(documents, text)
    return tasks


def tell_unused(protocols: list[str]) -> None:
    """Say so where a flag given has nothing to do with what is measured."""
    uses = {"stride": ("fixed", "sliding"), "targets": ("fixed",)}
    for name, value in (("stride", STRIDE.value), ("targets", TARGETS.value)):
        others = [protocol for protocol in protocols if protocol not in uses[name]]
        if value is not None and others:
            goes = " and ".join(uses[name])
            print(f"note: --{name} goes to {goes}; {', '.join(others)} takes none", file=sys.stderr)
    if TEXT.value is not None and all(protocol.startswith("probe:") for protocol in protocols):
        print("note: --text is not read: probes make their own questions", file=sys.stderr)


def tell_idle(scheme: str, position: str, config, longest: int) -> None:
    """Say so where an option asked for can change nothing at these lengths: its curve is then another's."""
    from flax import nnx

    import posenc

    made = posenc.create_layers(position, config.dims, config.num_layers, nnx.Rngs(0))
    for part in made.shared.values():
        if part.idle(longest):
            print(f"note: {scheme}: {part.idle(longest)}", file=sys.stderr)


def tell_one_pass(scheme: str, score) -> None:
    """Say so where the figures of `position` at early positions are not those of shorter windows."""
    if not score.model.scheme.prefix_invariant:
        print(
            f"note: {scheme} follows the length at hand, so position shows it as it is at the "
            "longest length, at earlier positions too; fixed or disjoint show it at each length",
            file=sys.stderr,
        )


def read_documents(run) -> list:
    """What is scored: the files of --text in the run's tokens, or the run's test documents."""
    import data

    if TEXT.value is not None:
        texts = data.read_text_documents(TEXT.value, run.config.data.text_column)
        return [run.tokenizer.encode(text) for _, text in texts]
    corpus = data.prepare(run.config.data)
    if not corpus.is_text_of(run.record["corpus"]):
        raise ValueError(
            f"data.source={run.config.data.source} is no longer the text that {run.workdir} was trained on, so its "
            "test documents may have been seen in training; give --text"
        )
    return corpus.test.documents()


if __name__ == "__main__":
    command.run(main)
