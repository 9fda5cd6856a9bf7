"""The figures of the report's tables and data, each by hand."""

import json
import re

import pytest
import report_samples as samples

from evaluation.report import comparisons, diagnostics, grids, losses, probes, runs, sections
from evaluation.report.measured import RANGE, TEXT, among, measured


def rows_of(html):
    """(head of the row, [text of each cell]) of every row of figures."""
    found = []
    for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL):
        head = re.search(r'<th scope="row">(.*?)</th>', row, re.DOTALL)
        if head:
            cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
            found.append((re.sub("<[^>]*>", " ", head[1]).split(), cells))
    return found


def probe(length, share, seed=0, answers=100, by_depth=None, scheme="rope"):
    more = {"accuracy": share, "answers": answers, "by_depth": by_depth}
    more |= {"accuracy_low": share / 2, "accuracy_high": (1 + share) / 2}
    return samples.record(scheme, length, 3.0, seed, "probe:passkey", **more)


def test_probes_of_several_seeds_are_their_mean_and_range():
    records = [probe(64, share, seed) for seed, share in enumerate((0.2, 0.3, 0.7))]
    (view,) = probes.views(records)
    (curve,) = view["curves"]
    length, mean, low, high, bits, interval, facts, why = curve["points"][0]
    assert (length, mean, low, high) == (64, pytest.approx(0.4), 0.2, 0.7)
    assert (bits, interval, facts, why) == (None, "range of 3 seeds", "300 answers", "")
    html = probes.table(records, "probe:passkey")
    assert rows_of(html)[0][1] == ["40 %<small>20 – 70</small>"]
    assert 'style="--s:0.40"' in html and 'title="range of 3 seeds; 300 answers"' in html
    (point,) = probes.views(records[:1])[0]["curves"][0]["points"]
    assert point[1:4] == [0.2, 0.1, 0.6] and point[5] == "95 % interval"


def test_depths_of_several_seeds_are_one_share_of_all_answers():
    """Each seed counts by how many it was asked there, and a depth that was never asked is left out."""
    records = [
        probe(64, 0.5, 0, by_depth=[[1.0, 1.0, 30], [0.0, 0.5, 10], [0.5, 0.0, 0]]),
        probe(64, 0.5, 1, by_depth=[[0.0, 0.9, 30], [1.0, 0.0, 10]]),
    ]
    (curve,) = probes.views(records)[0]["curves"]
    assert curve["depths"] == [[64, [[0.0, 0.8, 40], [1.0, 0.75, 40]]]]


def test_a_probe_without_a_figure_says_why():
    more = {"accuracy": None, "answers": 0, "by_depth": None, "accuracy_low": None}
    more |= {"accuracy_high": None, "status": "insufficient_data", "reason": "too few"}
    records = [probe(64, 0.5), samples.record("rope", 128, None, 0, "probe:passkey", **more)]
    records.append(probe(128, 0.9, scheme="t5"))
    (view,) = probes.views(records)
    assert view["curves"][0]["points"][1] == [128, None, None, None, None, "", "", "too few"]
    assert view["trained"] == [64]
    (_, rope), (_, t5) = rows_of(probes.table(records, "probe:passkey"))
    assert rope[1] == "too short" and t5[0] == "–"


def attention(scheme, length, layer, **figures):
    row = {"run": f"runs/{scheme}", "scheme": scheme, "seed": 0, "length": length}
    return row | {"train_length": 64, "layer": layer, "windows": 8, "rows": 256} | figures


def test_averages_are_over_layers_and_heads_of_each_length():
    rows = [
        attention("rope", 64, 0, entropy=[0.1, 0.3], unseen_angles=0.0),
        attention("rope", 64, 1, entropy=[0.2, None], unseen_angles=0.5),
        attention("rope", 128, 0, entropy=[1.0, 0.5], unseen_angles=None),
        attention("alibi", 64, 0, entropy=[0.4, 0.4], unseen_angles=None),
    ]
    html = diagnostics.averages(rows)
    entropy, angles = (
        re.search(f"<caption>{n}.*?</table>", html)[0] for n in ("Entropy", "Unseen")
    )
    assert rows_of(entropy) == [
        (["rope", "rope"], ["0.2", "0.75"]),
        (["alibi", "alibi"], ["0.4", "–"]),
    ]
    assert rows_of(angles)[0][1] == ["0.25", "–"] and rows_of(angles)[1][1] == ["–", "–"]
    assert "Mean distance" not in html


def test_maps_are_layers_by_heads_in_order_on_one_scale():
    rows = [
        attention("rope", 128, 1, entropy=[0.11116, 0.2]),
        attention("rope", 128, 0, entropy=[0.3, 0.4]),
        attention("rope", 64, 0, entropy=[0.5, 0.9]),
        attention("alibi", 64, 0, entropy=[0.05, 0.06]),
    ]
    data = diagnostics.views(rows)
    assert data["ranges"] == {"entropy": [0.05, 0.9]}
    assert [r["label"] for r in data["readings"]] == ["rope", "alibi"]
    assert data["readings"][0]["figures"]["entropy"] == [
        [64, [[0.5, 0.9]]],
        [128, [[0.3, 0.4], [0.1112, 0.2]]],
    ]
    rows[3] |= {"scheme": "rope"}  # another run under one scheme
    assert [r["label"] for r in diagnostics.views(rows)["readings"]] == [
        "rope (rope)",
        "rope (alibi)",
    ]


def test_a_curve_of_seeds_is_their_mean_with_range_and_the_cropped_cell_is_the_cropped_loss():
    records = samples.loss_records((0, 1, 2))
    (rope,) = [m for m in measured(records, "fixed", []) if m.curve.label == "rope"]
    point = rope.points[0]
    assert (point.nll, point.low, point.high) == pytest.approx((1.80, 1.78, 1.82))
    assert point.interval == f"{RANGE} of 3 seeds" and point.bits == pytest.approx(1 / 0.693147)
    assert (rope.cropped.length, rope.cropped.nll) == (64, pytest.approx(1.79))
    assert (rope.cropped.low, rope.cropped.high) == pytest.approx((1.79, 1.79))  # of its seeds
    assert among(rope.curve) == "3 seeds"
    ((_, table),) = losses.tables(records, [])
    row = {head[0]: cells for head, cells in rows_of(table)}["rope"]
    assert row[0] == "1.800<small>1.780 – 1.820</small>"
    assert [cell.split("<")[0] for cell in row] == [
        "1.800",
        "2.280",
        "2.830",
        "3.250",
        "3.450",
        "1.790",
    ]
    alone = measured(samples.loss_records(), "fixed", [])[3]
    assert (alone.points[0].low, alone.points[0].high) == pytest.approx((1.74, 1.83))
    assert alone.points[0].interval == TEXT and among(alone.curve) == "rope_s0"


def test_each_training_length_has_a_column_of_its_own_for_cropped_context():
    records = [samples.record("rope", n, 1.0) for n in (64, 128)]
    records += [samples.record("rope", 64, 1.25, protocol="cropped")]
    more = {"run": "runs/long", "train_length": 128}
    records += [samples.record("t5", 128, 2.0, **more)]
    records += [samples.record("t5", 128, 2.5, protocol="cropped", **more)]
    ((_, table),) = losses.tables(records, [])
    texts = [[cell.split("<")[0] for cell in cells] for _, cells in rows_of(table)]
    assert texts == [["1.000", "1.000", "1.250", "–"], ["–", "2.000", "–", "2.500"]]
    heads = re.findall(r'<th scope="col">(.*?)</th>', table)[1:]
    assert [h.replace("<wbr>", "") for h in heads] == ["64*", "128*", "cropped 64", "cropped 128"]


def test_losses_are_shaded_from_the_lowest_to_the_highest_but_no_less_than_a_quarter_of_a_nat():
    def shades(*values):
        records = [samples.record("rope", 64 * 2**k, v) for k, v in enumerate(values)]
        html = losses.tables(records, [])[0][1]
        found = re.findall(r"<td([^>]*)>", html)
        return [float(m[1]) if (m := re.search(r"--s:([\d.]+)", words)) else 0 for words in found]

    assert shades(1.0, 2.0, 3.0) == [0, 0.5, 1]
    assert shades(1.0, 1.1) == [0, 0.4]
    assert shades(1.0, 2.5, 9.0) == [0, 0.5, 1]
    assert grids.shade(1.0, 2.0, 2.0) == 0 and grids.shades([], 1, 2) == (0.0, 1.0)


def test_what_is_off_the_scale_is_told_and_not_drawn():
    records = [samples.record("rope", n, v) for n, v in ((64, 1.0), (128, 2.0), (256, 99.0))]
    (view,) = losses.views(records, [])
    (curve,) = view["curves"]
    assert curve["note"] == "off the scale past 128"
    assert curve["points"][2][1:4] == [None, None, None]
    assert curve["points"][2][7] == "99 nats: off the scale"
    assert "99.000" in losses.tables(records, [])[0][1]


def test_differences_are_turned_with_their_intervals():
    about = {"kind": "difference", "seeds": 1, "targets": 9, "clusters": "9 windows", "length": 64}
    row = about | {"a": "rope", "b": "pi", "difference": -0.25, "verdict": "lower"}
    html = comparisons.differences([row | {"ci_low": -0.375, "ci_high": -0.125}])
    (_, rope), (_, pi) = rows_of(html)
    assert rope == ["", "−0.250<small>−0.375 to −0.125</small>"]
    assert pi == ["+0.250<small>+0.125 to +0.375</small>", ""]
    assert 'title="rope is lower than pi"' in html and 'title="pi is higher than rope"' in html
    html = comparisons.differences([row | {"ci_low": None, "ci_high": None}])
    assert rows_of(html)[0][1] == ["", "−0.250"]


def test_targets_are_shared_only_where_counts_and_stride_are():
    records = [samples.record("rope", n, 1.0) for n in (64, 128)]
    assert sections.same_targets(records)
    for name, value in (("tokens_scored", 9), ("documents", 9), ("stride", 9)):
        assert not sections.same_targets([records[0], records[1] | {name: value}])
    assert sections.same_targets([records[0], records[1] | {"status": "failed", "stride": 9}])


def test_runs_show_what_differs_and_nothing_else(tmp_path):
    records = []
    for name, steps in (("a", 500), ("b", 700)):
        (tmp_path / name).mkdir()
        config = {
            "position": "rope",
            "train": {"steps": steps, "length": 64},
            "corpus": {"x": name},
        }
        config |= {"provenance": {"git_revision": "0123456789abcdef"}}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        records.append(samples.record("rope", 64, 1.0, run=str(tmp_path / name), step=steps - 1))
    html = runs.runs(records)
    first, second = re.findall("<table.*?</table>", html)
    assert [cells for _, cells in rows_of(second)] == [["500"], ["700"]]
    assert [cells[3] for _, cells in rows_of(first)] == ["499", "699"]
    assert [cells[-1] for _, cells in rows_of(first)] == ["0123456789ab"] * 2
    missing = [samples.record("learned", n, None) for n in (128, 256)]
    html = runs.missing_points([*records, *missing])
    assert "2 points without a figure, and why" in html and "learned, fixed 256: undefined" in html
    assert runs.missing_points(records) is None
