"""The values that the static pictures draw, read from the figure before it is a file."""

import math

import numpy as np
import pytest
import report_samples as samples
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from evaluation import captions, plots, probe_plot
from evaluation.curves import gather
from evaluation.report import looks
from evaluation.styles import DASHES, SCHEME_STYLE, appearances, style
from evaluation.tables import blocks, cluster_span, counted, format_table, span

LENGTHS = (64, 128, 256)


def records_of(values, **more):
    return [
        samples.record(scheme, n, nll, **more)
        for scheme, nlls in values.items()
        for n, nll in zip(LENGTHS, nlls, strict=False)
    ]


def drawn(records, protocol="fixed", statistics=()):
    """The axes with the curves of these records."""
    axes = Figure(figsize=(9.6, 5.8)).add_axes((0.078, 0.19, 0.68, 0.635))
    plots._draw(axes, gather(records, protocol, statistics), protocol)
    return axes


def data_lines(axes):
    """(x, y, line) of what is drawn in the axes' own data: no leader or sample of the labels."""
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float), line)
        for line in axes.lines
        if line.get_transform() == axes.transData
    ]


def found(axes, kind):
    """(x, y) of the curves ("curve"), their marks ("marks"), crosses ("X") or cropped lines ("crop")."""
    picked = []
    for x, y, line in data_lines(axes):
        width, marker = line.get_linewidth(), line.get_marker()
        is_cross = marker == "X" and line.get_markersize() == 10
        name = "X" if is_cross else "curve" if width == 1.9 else "crop" if width == 1.1 else "marks"
        if name == kind:
            picked.append((x, y))
    return picked


def bands(axes):
    """The corners of each band, [n, 2]."""
    return [c.get_paths()[0].vertices for c in axes.collections if len(c.get_paths())]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_curve_is_drawn_at_e_to_its_loss():
    axes = drawn(records_of({"rope": (1.0, 2.0, 3.0), "t5": (1.5, 1.25, 1.0)}))
    for kind in ("curve", "marks"):
        (x, rope), (_, t5) = found(axes, kind)
        assert x.tolist() == list(LENGTHS)
        np.testing.assert_allclose(rope, [math.e, math.e**2, math.e**3], rtol=1e-12)
        np.testing.assert_allclose(t5, np.exp([1.5, 1.25, 1.0]), rtol=1e-12)
    assert axes.get_yscale() == axes.get_xscale() == "log" and not found(axes, "X")


def test_a_band_is_drawn_from_e_to_low_to_e_to_high():
    axes = drawn(records_of({"rope": (1.0, 2.0, 3.0)}))
    (corners,) = bands(axes)
    for n, nll in zip(LENGTHS, (1.0, 2.0, 3.0), strict=True):
        at = np.unique(corners[corners[:, 0] == n, 1].round(9))
        np.testing.assert_allclose(at[[0, -1]], np.exp([nll - 0.04, nll + 0.05]), rtol=1e-8)


def test_a_point_without_a_figure_is_a_gap_behind_a_hollow_cross():
    axes = drawn(records_of({"rope": (1.0, 1.0, 1.1), "learned": (2.0, None, None)}))
    (_, (x, y)), ((cross_x, cross_y),) = found(axes, "curve"), found(axes, "X")
    assert x.tolist() == list(LENGTHS) and math.isnan(y[1]) and math.isnan(y[2])
    assert (cross_x.item(), cross_y.item()) == (64, pytest.approx(math.exp(2.0)))
    assert "undefined past 64" in texts(axes)


def test_a_gap_in_the_middle_has_its_cross_before_it():
    axes = drawn(records_of({"rope": (1.0, None, 1.1)}))
    ((x, y),) = found(axes, "X")
    assert (x.item(), y.item()) == (64, pytest.approx(math.e)) and "undefined at 128" in texts(axes)


def test_cropped_context_is_a_line_at_e_to_its_loss_from_the_training_length_on():
    records = records_of({"rope": (1.0, 1.0, 1.5), "pi": (1.0, 1.2, 1.6), "t5": (2.0, 2.0, 2.0)})
    records += [samples.record(s, 64, v, protocol="cropped") for s, v in
                (("rope", 1.1), ("pi", 1.1), ("t5", 2.25))]  # fmt: skip
    lines = found(drawn(records), "crop")
    lines = [(x, y) for x, y in lines if len(set(y)) == 1]  # a training length stands upright
    assert [x.tolist() for x, _ in lines] == [[64, 256], [64, 256]]  # equal ones once
    np.testing.assert_allclose([y[0] for _, y in lines], np.exp([1.1, 2.25]), rtol=1e-12)
    long = [r | {"train_length": 128} for r in records if r["scheme"] == "t5"]
    long[-1] |= {"length": 128}
    ((x, _),) = [(x, y) for x, y in found(drawn(long), "crop") if len(set(y)) == 1]
    assert x.tolist() == [128, 256]


def test_what_is_off_the_scale_is_left_out_and_told():
    records = records_of({"rope": (1.0, 2.0, 1.0 + captions.OFF_SCALE), "t5": (50.0,)})
    records.append(samples.record("rope", 64, 99.0, protocol="cropped"))
    axes = drawn(records)
    (_, rope), (_, t5) = found(axes, "curve")
    np.testing.assert_allclose(rope[:2], np.exp([1.0, 2.0]))
    assert math.isnan(rope[2]) and math.isnan(t5[0])
    assert "off the scale past 128" in texts(axes) and "off the scale" in texts(axes)
    assert [y for _, y in found(axes, "crop") if len(set(y)) == 1] == []
    wide = [samples.record("rope", 64, 1.0, ci_low=0.5, ci_high=900.0)]
    top = max(corner for _, corner in bands(drawn([*wide, samples.record("rope", 128, 1.0)]))[0])
    assert top == pytest.approx(1e6 * math.e)


def test_the_scale_holds_everything_and_has_room():
    axes = drawn(records_of({"rope": (1.0, 2.0, 3.0)}))
    np.testing.assert_allclose(np.log(axes.get_ylim()), [1 - 0.14, 3 + 0.14])
    low, high = axes.get_xlim()
    assert (low, high) == pytest.approx((64 / 2**0.07, 256 * 2**0.07))
    assert sorted(axes.get_xticks()) == list(LENGTHS)
    flat = drawn(records_of({"rope": (1.0, 1.0, 1.0)}))
    np.testing.assert_allclose(np.log(flat.get_ylim()), [1 - 0.014, 1 + 0.014])


@pytest.mark.parametrize("bottom, top", [(4.6, 41.0), (1.0, 9.5), (2.7, 2.75), (1, 1e6), (5, 5.6)])
def test_ticks_are_round_and_few(bottom, top):
    ticks = plots._round_numbers(bottom, top)
    assert len(ticks) <= 9 and all(bottom <= tick <= top for tick in ticks)
    assert ticks == sorted(ticks)
    digits = [f"{tick / 10 ** math.floor(math.log10(tick)):.6g}" for tick in ticks]
    assert all(len(d) <= 3 for d in digits)
    if (bottom, top) == (4.6, 41.0):
        assert ticks == pytest.approx([5, 6, 8, 10, 15, 20, 25, 30, 40])


def test_training_lengths_are_marked_where_they_are_in_the_picture():
    records = records_of({"rope": (1.0, 2.0, 3.0)})
    inside = drawn(records + [r | {"scheme": "t5", "train_length": 128} for r in records])
    marks = [x[0] for x, y in found(inside, "crop")]
    assert not marks  # they stand in other coordinates than the curves
    upright = [line for line in inside.lines if line.get_linewidth() == 1.1]
    assert sorted(line.get_xdata()[0] for line in upright) == [64, 128]
    assert {"training length 64", "training length 128"} <= set(texts(inside))
    outside = drawn([r | {"train_length": 1024} for r in records])
    assert not [t for t in texts(outside) if t.startswith("training")]


def test_positions_have_no_marks_and_ticks_at_powers_of_two():
    records = [samples.record("rope", n, 1.0 + 1 / n, protocol="position") for n in range(1, 33)]
    axes = drawn(records, "position")
    assert len(found(axes, "curve")) == 1 and not found(axes, "marks")
    assert axes.get_xticks().tolist() == [32, 16, 8, 4, 2, 1]


def test_close_lengths_share_a_tick():
    records = [samples.record("rope", n, 1.0) for n in (64, 65, 66, 1024)]
    assert sorted(drawn(records).get_xticks()) == [66, 1024]


def test_labels_stand_in_the_order_of_the_ends_and_lead_to_those_that_reach_the_last_length():
    axes = drawn(records_of({"rope": (1.0, 2.0, 3.0), "t5": (2.0, 2.0), "pi": (1.0, 1.0, 2.5)}))
    at = {t.get_text(): t.get_position() for t in axes.texts}
    assert at["rope"][1] > at["pi"][1] > at["t5"][1] and at["rope"][0] == 1.1
    leaders = [line for line in axes.lines if line.get_linewidth() == 0.8]
    assert sorted(to_hex(line.get_color()) for line in leaders) == sorted(
        SCHEME_STYLE[name][0].lower() for name in ("rope", "pi")
    )
    begin = max(leaders, key=lambda line: line.get_ydata()[0])  # at the end of rope's curve
    end = (axes.transData + axes.transAxes.inverted()).transform((256, math.exp(3.0)))
    assert (begin.get_xdata()[0], begin.get_ydata()[0]) == pytest.approx(tuple(end), abs=1e-9)
    assert begin.get_ydata()[1] == pytest.approx(at["rope"][1])


def test_looks_differ_where_colours_do_not():
    schemes = ["rope", "rope:base=500", "rope:base=900", "rope+log_n", "ntk", "dynamic_ntk"]
    made = appearances(schemes)
    shown = [
        (line["color"], line["dashes"], dots["marker"], dots["mfc"] == "white")
        for line, dots in made
    ]
    assert len(set(shown)) == len(schemes)
    assert [hollow for *_, hollow in shown] == [False, True, True, True, False, False]
    assert made[0][0]["dashes"] == DASHES["solid"] and made[1][0]["dashes"] == DASHES["dashed"]
    assert style("rope+log_n")[2] == "dotted" and style("rope+log_n:clip=false")[2] == "dotted"
    assert style("unheard") == ("#666666", "o", "solid")
    (page,) = looks.looks(["rope:base=500"])
    assert (page["colour"], page["symbol"], page["hollow"]) == ("#00559E", "circle", True)
    assert page["dash"] == "dash" and looks.looks(["rope+log_n"])[0]["dash"] == "dot"


def probe(scheme, length, share, seed=0, task="copy", **more):
    values = {"accuracy": share, "answers": 200 if share is not None else 0, "by_depth": None}
    values |= {"accuracy_low": share and share - 0.1, "accuracy_high": share and share + 0.05}
    about = {"run": f"runs/{scheme}_s{seed}", "protocol": f"probe:{task}"}
    return samples.record(
        scheme, length, None if share is None else 3.0, seed, **(about | values | more)
    )


def panel(records):
    curves = gather([probe_plot.as_loss(r) for r in records], records[0]["protocol"])
    axes = Figure().add_axes((0, 0, 1, 1))
    names = dict(
        zip([c.label for c in curves], appearances([c.scheme for c in curves]), strict=True)
    )
    probe_plot._draw(axes, "copy", curves, names)
    return axes


def test_a_panel_of_probes_draws_shares_their_intervals_and_gaps():
    shares = {64: 0.9, 128: 0.5, 256: None}
    axes = panel([probe("rope", n, share) for n, share in shares.items()])
    for _, y, _ in data_lines(axes)[:2]:
        assert y[:2].tolist() == [0.9, 0.5] and math.isnan(y[2])
    (corners,) = bands(axes)
    at = corners[corners[:, 0] == 128, 1]
    assert (at.min(), at.max()) == pytest.approx((0.4, 0.55))
    assert axes.get_ylim() == (0, 1) and axes.get_title("left") == "copy"
    assert axes.get_xticks().tolist() == [64, 128, 256]
    assert texts(axes) == ["training length 64"]


def test_seeds_of_a_probe_are_their_mean_in_the_band_of_their_range():
    axes = panel([probe("rope", 64, share, seed) for seed, share in enumerate((0.2, 0.3, 0.7))])
    assert data_lines(axes)[0][1].tolist() == pytest.approx([0.4])
    (corners,) = bands(axes)
    assert (corners[:, 1].min(), corners[:, 1].max()) == pytest.approx((0.2, 0.7))


def test_the_picture_of_probes_names_its_curves_and_those_that_coincide(tmp_path):
    records = [
        probe(s, n, 0.5, task=t)
        for t in ("copy", "sort")
        for s in ("rope", "t5")
        for n in (64, 128)
    ]
    records[-1] |= {"accuracy": 0.25}
    probe_plot.plot_probes(records, tmp_path)
    svg = (tmp_path / "probes.svg").read_text(encoding="utf-8")
    assert "Coinciding: copy: t5 with rope." in svg and "of 200 at each length" in svg
    for words in (">copy<", ">sort<", ">rope<", ">t5<", ">Right answers against length<"):
        assert svg.count(words) == 1


def test_captions_say_spans_and_clusters():
    assert span([3, None, 7, 5]) == "3-7" and span([4, 4]) == "4" and span([None]) == "-"
    assert counted([1, 1], "seed") == "1 seed" and counted([1, 3], "seed") == "1-3 seeds"
    kinds = ("12 documents", "9 documents", "40 windows", "1 documents")
    found = [{"clusters": name} for name in kinds]
    assert cluster_span(found) == "1-12 documents or 40 windows"
    assert captions._either([64, 128, 256]) == "64, 128 or 256"


def test_the_printed_table_has_cropped_last_and_positions_at_powers_of_two():
    records = records_of({"rope": (1.0, 2.0, 3.0)})
    records.append(samples.record("rope", 64, 0.75, protocol="cropped"))
    (block,) = blocks(records)
    assert [block.header(c) for c in block.columns] == ["64*", "128", "256", "cropped 64"]
    assert "targets in blocks of 32" in block.facts and block.units == "nll in nats per token"
    line = format_table(records).splitlines()[2]
    assert line.split() == ["runs/rope_s0", "rope", "1.000", "2.000", "3.000", "0.750"]
    (block,) = blocks(
        [samples.record("rope", n, 1.0, protocol="position") for n in (1, 2, 3, 4, 6, 7)]
    )
    assert [n for _, n in block.columns] == [1, 2, 4, 7]
    text = format_table([probe("rope", 64, 0.5)])
    assert "200 questions at each length" in text and "0.500" in text
