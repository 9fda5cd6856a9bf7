"""The files of an evaluation, the printed table and the picture."""

import csv
import json
import math

import numpy as np
import pytest

import evaluation
from evaluation import captions
from evaluation.curves import gather
from evaluation.plots import _apart, plot_curves
from evaluation.records import FIELDS
from evaluation.report.looks import on_dark
from evaluation.styles import SCHEME_STYLE, appearances, style

LENGTHS = (64, 128, 256)


def record(scheme, length, nll, run=None, protocol="fixed", seed=0, status="ok"):
    run = run or f"runs/{scheme}"
    found = {"protocol": protocol, "length": length, "stride": 256, "status": status}
    found |= {"run": run, "scheme": scheme, "seed": seed, "step": 800, "train_length": 64}
    found |= {"factor": None, "config_hash": "abc", "seconds": 0.5}
    found |= {"reason": None, "tokens_scored": 320, "windows": 10, "documents": 9}
    found |= {"clusters": "9 documents", "min_context": length - 31, "nll_sum": None}
    found |= dict.fromkeys(("nll", "ci_low", "ci_high", "ppl", "bits_per_byte"))
    if status != "ok":
        nothing = {"tokens_scored": 0, "windows": 0, "documents": 0, "clusters": None}
        return found | nothing | {"min_context": None, "reason": f"because of {status}"}
    found |= {"nll": nll, "nll_sum": 320 * nll, "ci_low": nll - 0.05, "ci_high": nll + 0.05}
    return found | {"ppl": math.exp(nll) if nll < 700 else None}


def demo():
    table = {
        "alibi": (1.77, 1.77, 1.75),
        "rope": (1.68, 2.16, 2.47),
        "yarn:factor=4": (1.7, 1.8, 1.9),
    }
    found = [
        record(scheme, length, nll, run="runs/rope" if "yarn" in scheme else None)
        for scheme, values in table.items()
        for length, nll in zip(LENGTHS, values, strict=True)
    ]
    found.append(record("rope", 64, 1.6, protocol="cropped"))
    found.append(record("learned", 64, 1.9))
    found += [record("learned", n, None, status="undefined") for n in LENGTHS[1:]]
    return found


def lines(path):
    def refuse(name):
        raise AssertionError(name)

    text = path.read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_records_are_strict_json_in_the_fixed_order(tmp_path):
    records = demo()
    records[0] |= {"nll": np.float64(1.5), "tokens_scored": np.int64(3), "ppl": math.inf}
    records[1] |= {"nll_sum": np.float32("nan"), "extra": 7}
    evaluation.write_records(tmp_path / "new" / "out", records)
    found = lines(tmp_path / "new" / "out" / "records.jsonl")
    assert all(list(row)[: len(FIELDS)] == FIELDS for row in found)
    assert found[0]["nll"] == 1.5 and found[0]["tokens_scored"] == 3 and found[0]["ppl"] is None
    assert found[1]["nll_sum"] is None and found[1]["extra"] == 7
    assert evaluation.read_records(tmp_path / "new" / "out") == found
    assert evaluation.read_records(tmp_path / "new" / "out" / "records.jsonl") == found
    with (tmp_path / "new" / "out" / "curves.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[: len(FIELDS)] == FIELDS and len(rows) == len(records)
    assert rows[1]["nll"] == "1.77" and rows[0]["ppl"] == "" and rows[-1]["status"] == "undefined"
    assert not (tmp_path / "new" / "out" / "positions.csv").exists()
    assert not (tmp_path / "new" / "out" / "targets.npz").exists()


def test_a_sweep_goes_to_disk_and_pairs_again(tmp_path):
    documents = [np.arange(n, dtype=np.int32) % 7 for n in (200, 300)]
    losses = {"rope": lambda t: np.sqrt(t[:, 1:] + 1.0), "pi": lambda t: t[:, 1:] / 4.0}
    records, details = [], {}
    for scheme, score in losses.items():
        details["runs/a", scheme] = {}
        for protocol in ("fixed", "position"):
            swept = evaluation.sweep(
                score,
                documents,
                [32, 64],
                protocol,
                details=details["runs/a", scheme],
                train_length=8,
            )
            records += [{"run": "runs/a", "scheme": scheme, "seed": 0, **r} for r in swept]
    evaluation.write_records(tmp_path, records, details)
    with np.load(tmp_path / "targets.npz") as arrays:
        assert set(arrays) == {
            *(f"runs/a|{s}|{n}" for s in losses for n in (32, 64, "cropped 8")),
            "clusters",
        }
        a, b, clusters = (arrays[k] for k in ("runs/a|rope|64", "runs/a|pi|64", "clusters"))
    mean, low, high = evaluation.paired_difference(a, b, clusters)
    nll = {r["scheme"]: r["nll"] for r in records if r["length"] == 64 and r["protocol"] == "fixed"}
    assert mean == pytest.approx(nll["rope"] - nll["pi"]) and low <= mean <= high
    with (tmp_path / "positions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["protocol"] for row in rows} == {"position"}
    assert rows[0]["start"] == "1" and rows[-1]["length"] == "64"
    evaluation.write_records(tmp_path, demo())  # nothing of the first may pass for the second's
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.csv", "records.jsonl"]


@pytest.mark.parametrize("sizes", [(3, 3, 3), (3, 4, 3), (3, 3, 4)])
def test_targets_come_back_as_they_were_given(tmp_path, sizes):
    """One array of cluster ids where the targets are the same, one each where they are not."""
    keys = [("a|b", "rope"), ("a|b", "yarn:factor=4,beta_fast=16"), ("runs/c", "rope")]
    details = {
        key: {
            ("fixed", n): {"nll": np.full(size, n / 3), "clusters": np.arange(size)}
            for n in (8, 64)
        }
        for key, size in zip(keys, sizes, strict=True)
    }
    evaluation.write_records(tmp_path, [], details)
    with np.load(tmp_path / "targets.npz") as arrays:
        shared = {"clusters"} if len(set(sizes)) == 1 else {f"{a}|{b}|clusters" for a, b in keys}
        assert set(arrays) == {f"{a}|{b}|{n}" for a, b in keys for n in (8, 64)} | shared
    for found in (
        evaluation.read_targets(tmp_path),
        evaluation.read_targets(tmp_path / "targets.npz"),
    ):
        assert list(found) == keys
        for key, points in details.items():
            assert list(found[key]) == list(points)
            for name, point in points.items():
                for kind in ("nll", "clusters"):
                    assert np.array_equal(found[key][name][kind], point[kind])
    assert evaluation.read_targets(tmp_path / "none") == {}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    evaluation.write_records(tmp_path, demo())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr("evaluation.records.os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        evaluation.write_records(tmp_path, demo()[:2])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"run": 1}\n{"run": \n')
    with pytest.raises(ValueError, match="line 2"):
        evaluation.read_records(tmp_path)


def test_the_table():
    records = [*demo(), record("rope", 64, None, protocol="sliding", status="out_of_memory")]
    text = evaluation.format_table(records)
    assert text.isascii()
    head, body = text.split("\n\n")[0].splitlines()[0], text.split("\n\n")[0].splitlines()[1:]
    assert head == (
        "fixed: nll in nats per token, stride 256, 320 targets in blocks of 32, 9 documents, "
        "1 seed, intervals over 9 documents"
    )
    assert body[0].split() == ["run", "scheme", "64*", "128", "256", "cropped", "64"]
    assert body[2].split() == ["runs/rope", "rope", "1.680", "2.160", "2.470", "1.600"]
    assert body[4].split() == ["runs/learned", "learned", "1.900", "undef.", "undef.", "-"]
    assert body[-1] == "* training length"
    assert len({len(line) for line in body[:3]}) == 1
    assert "sliding: nll" in text and "oom" in text
    assert "runs/learned learned, fixed 128, 256: undefined: because of undefined" in text


def test_seeds_make_one_curve_and_experiments_do_not():
    seeds = [record("rope", n, v + s / 10, f"runs/rope_s{s}", seed=s)
             for s in (0, 1, 2) for n, v in ((64, 1.0), (128, 2.0))]  # fmt: skip
    (curve,) = gather(seeds, "fixed")
    assert (curve.label, curve.seeds, curve.lengths) == ("rope", 3, [64, 128])
    assert curve.nll == pytest.approx([1.1, 2.1])
    assert (curve.low, curve.high) == ([1.0, 2.0], [1.2, 2.2])
    tuned = [record("rope", 64, 5.0, f"runs/tuned_s{s}", seed=s) for s in (0, 1, 2)]
    curves = gather(seeds + tuned, "fixed")
    assert [(c.label, c.seeds) for c in curves] == [("rope (rope)", 3), ("rope (tuned)", 3)]
    seeds[1] |= record("rope", 128, None, "runs/rope_s0", status="failed")
    (curve,) = gather(seeds, "fixed")
    assert curve.lengths == [64] and curve.note() == "failed past 64"


def test_the_picture(tmp_path):
    plot_curves(demo(), tmp_path)
    assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    svg = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    for words in (
        "undefined past 64",
        "training length 64",
        "yarn:factor=4",
        ">256<",
        "stride 256",
    ):
        assert words in svg
    assert "only the last 64 tokens" in svg and SCHEME_STYLE["rope"][0].lower() in svg
    plot_curves(demo(), tmp_path)
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8") == svg
    assert "<dc:date>" not in svg
    mark = f"fill: #ffffff; stroke: {SCHEME_STYLE['learned'][0].lower()}"  # the hollow cross
    assert svg.count(mark) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "curves.svg"]


def seeds(scheme, numbers, shift=0.0):
    return [
        record(scheme, n, nll + shift + s / 20, f"runs/{scheme}_s{s}", seed=s)
        for s in numbers
        for n, nll in zip(LENGTHS, (1.7, 1.8, 2.0), strict=True)
    ]


def interval(scheme, numbers):
    runs = [f"runs/{scheme}_s{s}" for s in numbers]
    row = {"kind": "curve", "label": scheme, "runs": runs, "ci_low": 1.5, "ci_high": 2.4}
    return [row | {"length": n} for n in LENGTHS]


@pytest.mark.parametrize(
    "records, statistics, words",
    [
        (demo(), (), "Bands: 95 % bootstrap intervals over 9 documents."),
        (seeds("rope", (0, 1, 2)), (), "Bands: from the lowest to the highest seed."),
        (
            seeds("rope", (0, 1, 2)),
            interval("rope", (0, 1, 2)),
            "Lines: the mean of the seeds. "
            "Bands: 95 % bootstrap intervals over seeds and text (9 documents).",
        ),
        (
            seeds("rope", (0, 1)) + seeds("t5", (0,), 1.0) + seeds("alibi", (0, 1), 0.5),
            interval("rope", (0, 1)),
            "over seeds and text, of single runs over text (9 documents); from the lowest to the "
            "highest seed.",
        ),
    ],
)
def test_the_picture_says_what_its_bands_are(tmp_path, records, statistics, words):
    plot_curves(records, tmp_path, statistics)
    (line, *_) = captions.notes(records, gather(records, "fixed", statistics), "fixed")
    assert words in line
    assert words.split(" (")[0] in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_the_picture_says_how_it_was_measured():
    chosen = seeds("rope", (0, 1, 2))
    line = captions.subtitle(chosen, gather(chosen, "fixed"), "fixed")
    facts = "fixed protocol, stride 256, 320 targets, 9 documents, 3 seeds"
    assert line == f"The same target tokens at every length: {facts}"
    records = [*demo(), record("t5", 64, 1.0, protocol="cropped") | {"train_length": 256}]
    records.append(record("t5", 64, 2.0) | {"train_length": 256})
    assert captions.notes(records, gather(records, "fixed"), "fixed")[1] == (
        "Thin dashed lines: the same targets, only a training length of context "
        "(the last 64 or 256 tokens)."
    )


@pytest.mark.parametrize(
    "records, words",
    [
        ([], "no point could be measured"),
        ([record("rope", 64, None, status="failed")], "no point could be measured"),
        ([record("rope", 64, 1000.0)], "rope"),
        ([*demo(), record("t5", 64, 2.0), record("t5", 128, 1000.0)], "off the scale past 64"),
        ([record("a_$x$_<&>_" + 60 * "b", n, 2.0) for n in LENGTHS], ">a_$x$_&lt;&amp;&gt;_"),
        ([record("rope", 64, 2.0, protocol="disjoint") | {"ci_low": None}], "disjoint"),
        ([record("rope", n, 2.0, protocol="position") for n in range(1, 40)], "position in the"),
    ],
)
def test_the_picture_copes(tmp_path, records, words):
    plot_curves(records, tmp_path)
    assert words in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_labels_do_not_overlap():
    random = np.random.default_rng(0)
    for n in (1, 2, 7, 20):
        wanted = np.sort(random.random(n)).tolist()
        sizes = random.uniform(0.03, 0.06, n)
        centres = np.array(_apart(wanted, sizes.tolist()))
        assert np.all(np.diff(centres) >= (sizes[1:] + sizes[:-1]) / 2 - 1e-9)
    assert _apart([0.1, 0.9], [0.05, 0.05]) == pytest.approx([0.1, 0.9])


# sRGB as seen with protanopia, deuteranopia and tritanopia (Machado et al. 2009, severity 1)
VISION = {
    "full": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(colour, vision):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    rgb = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    rgb = np.clip(np.array(VISION[vision]) @ rgb, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ rgb / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("page", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_the_common_schemes_keep_apart_for_every_reader(vision, page):
    seven = ("sinusoidal", "learned", "alibi", "rope", "pi", "ntk", "yarn")
    shown = {"light": lambda colour: colour, "dark": on_dark}[page]
    colours = {name: lab(shown(SCHEME_STYLE[name][0]), vision) for name in seven}
    for a in seven:
        for b in seven:
            if a < b:
                distance = np.linalg.norm(colours[a] - colours[b])
                assert distance > 15, f"{a} and {b} with {vision}: {distance:.0f}"


def test_a_scheme_looks_the_same_everywhere():
    assert len(set(SCHEME_STYLE.values())) == len(SCHEME_STYLE)
    assert style("yarn:factor=4")[:2] == style("yarn+log_n")[:2] == SCHEME_STYLE["yarn"][:2]
    assert style("yarn:factor=4") != style("yarn") != style("yarn+log_n")
    schemes = ["pi", "pi", "yarn:factor=4", "yarn:factor=8", "yarn", "mine"]
    looks = appearances(schemes)
    assert len({str(look) for look in looks}) == len(schemes)
    assert [line["color"] for line, _ in looks] == [style(scheme)[0] for scheme in schemes]
