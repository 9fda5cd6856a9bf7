"""What the report tells a reader beside the figures: counts, hidden curves, shades, origins, names."""

import json
import re

import pytest
import report_samples as samples

from evaluation import captions
from evaluation.curves import gather
from evaluation.report import comparisons, diagnostics, grids, losses, markup, probes, runs
from evaluation.report.page import _summary


def curves_of(values, **more):
    """Curves of the given losses at 64, 128, …, as `gather` makes them."""
    records = [
        samples.record(scheme, n, nll, **more)
        for scheme, losses in values.items()
        for n, nll in zip(samples.LENGTHS, losses, strict=False)
    ]
    return records, gather(records, "fixed")


def test_curves_are_not_counted_as_schemes():
    """Options and a second run make another curve, not another scheme; a composition is one."""
    records, _ = curves_of({"pi": (1.0,), "pi:factor=4": (1.0,), "rope+window:size=8": (1.0,)})
    records += [samples.record("rope+window:size=4", 128, 1.0), samples.record("pi", 64, 1.0, 1)]
    assert _summary(records) == "4 curves, 2 schemes, 4 runs, lengths 64-128, trained at 64"


def test_the_seeds_of_a_curve_are_one_curve():
    records = samples.loss_records((0, 1, 2), ("fixed", "disjoint"))
    assert _summary(records).startswith("6 curves, 6 schemes, 12 runs, lengths 64-1024")


def test_a_curve_that_lies_on_another_is_named():
    height = 2.0
    near, far = 0.99 * captions.LINE * height, 1.01 * captions.LINE * height
    records, curves = curves_of(
        {
            "rope": (1.0, 3.0),
            "pi": (1.0 + near, 3.0),
            "ntk": (1.0 + far, 3.0),
            "yarn": (1.0 + near, 3.0 - near),  # on rope, and not on pi: the first is named
            "learned": (1.0, None),
            "t5": (1.0,),
        }
    )
    assert captions.coinciding(curves) == {"pi": "rope", "yarn": "rope", "t5": "learned"}
    assert (
        "pi with rope, yarn with rope, t5 with learned."
        in captions.notes(records, curves, "fixed")[-1]
    )
    notes = {curve["label"]: curve["note"] for curve in losses.views(records, [])[0]["curves"]}
    assert notes["pi"] == "coincides with rope" and notes["rope"] == notes["ntk"] == ""
    assert notes["learned"] == "undefined past 64"


def test_nothing_coincides_where_nothing_is_near():
    records, curves = curves_of({"rope": (1.0, 3.0), "pi": (1.1, 3.0), "alibi": (None, None)})
    assert captions.coinciding(curves) == {} and captions.coinciding([]) == {}
    assert "Coinciding" not in " ".join(captions.notes(records, curves, "fixed"))


def test_what_is_off_the_scale_does_not_make_the_others_coincide():
    _, curves = curves_of({"rope": (1.0, 3.0), "pi": (1.02, 3.0), "t5": (1.0, 500.0)})
    assert captions.limit(curves) == pytest.approx(1.0 + 13.8155, abs=1e-4)
    assert captions.coinciding(curves) == {}


def test_probes_coincide_by_their_share_of_right_answers():
    """Their losses differ; and the picture is as high as all answers, whatever the curves span."""
    found = []
    for scheme, share, nll in (("rope", 0.5, 1.0), ("alibi", 0.504, 9.0), ("t5", 0.506, 1.0)):
        more = {"accuracy": share, "answers": 9, "accuracy_low": 0.1, "accuracy_high": 0.9}
        more |= {"by_depth": None, "run": scheme}
        found.append(samples.record(scheme, 64, nll, protocol="probe:copy", **more))
    (view,) = probes.views(found)
    notes = [curve["note"] for curve in view["curves"]]
    assert notes == ["", "coincides with rope", ""]


def cells(html):
    """(class, shade) of each cell of figures."""
    found = re.findall(r"<td([^>]*)>", html)
    kinds = [re.search(r'class="([^"]*)"', words) for words in found]
    shades = [re.search(r'style="--s:([^"]*)"', words) for words in found]
    return [(k and k[1], s and float(s[1])) for k, s in zip(kinds, shades, strict=True)]


def gain(value, low, high, answer, label="rope"):
    row = {"kind": "context", "label": label, "length": 128, "gain": value, "ci_low": low}
    row |= {"ci_high": high, "answer": answer}
    return row | {"seeds": 1, "targets": 9, "clusters": "9 windows"}


@pytest.mark.parametrize(
    "value, half, answer, expected",
    [
        (-1.6, 0.1, "no", ("above", 1.0)),
        (-0.5, 0.1, "no", ("above", 0.56)),
        (-0.011, 0.001, "no", ("above", 0.13)),
        (-0.005, 0.001, "no", (None, None)),  # decided, and harmless
        (0.005, 0.001, "yes", (None, None)),
        (0.5, 0.1, "yes", ("below", 0.56)),
        (0.5, 0.6, "undecided", ("undecided", None)),
        (-0.5, 0.6, "undecided", ("undecided", None)),
    ],
)
def test_the_use_of_context_is_shaded_by_its_size(value, half, answer, expected):
    rows = [gain(value, value - half, value + half, answer), gain(-2, -2.1, -1.9, "no", "pi")]
    html = comparisons.contexts(rows)
    found = cells(html)
    assert found == [expected, ("above", 1.0)]
    assert "gains 1.00 or more" in html and "loses 1.00 or more" in html


def test_no_gain_whose_interval_reaches_zero_is_not_shaded():
    html = comparisons.contexts([gain(-0.5, -1.0, 0.0, "no")])
    assert cells(html) == [(None, None)] and "gains 0.50<" in html
    html = comparisons.contexts([gain(-0.5, None, None, "undecided")])
    assert cells(html) == [("undecided", None)]


@pytest.mark.parametrize(
    "value, verdict, expected",
    [
        (0.5, "higher", ("above", 0.56)),
        (-0.5, "lower", ("below", 0.56)),
        (0.02, "higher", ("above", 0.14)),
        (0.009, "higher", (None, None)),
        (0.5, "undecided", ("undecided", None)),
    ],
)
def test_differences_are_shaded_by_their_size(value, verdict, expected):
    about = {"kind": "difference", "length": 64, "ci_low": -9, "ci_high": 9, "seeds": 1}
    about |= {"targets": 9, "clusters": "9 windows"}
    row = about | {"a": "rope", "b": "pi", "difference": value, "verdict": verdict}
    largest = about | {"a": "rope", "b": "t5", "difference": 1.0, "verdict": "higher"}
    html = comparisons.differences([row, largest])
    first = cells(html)[:2]
    assert first == [("quiet", None), expected]
    assert "row higher by 1.00<" in html and "row lower by 1.00<" in html


def test_trifles_among_small_differences_are_not_dark():
    """The scale has at least a tenth of a nat."""
    assert comparisons._darkest([0.02, -0.05]) == (0.1, "0.10")
    assert comparisons._darkest([0.2, -0.5]) == (0.5, "0.50")
    assert comparisons._darkest([0.2, -1.5]) == (1.0, "1.00 or more")


def test_averages_that_are_nearly_alike_look_alike():
    rows = [
        {"run": "runs/a", "scheme": s, "seed": 0, "length": n, "train_length": 64, "layer": 0}
        | {"entropy": [v, v], "windows": 8, "rows": 99}
        for s, n, v in (("rope", 64, 0.500), ("rope", 128, 0.501), ("alibi", 64, 0.505))
    ]
    shades = [shade for _, shade in cells(diagnostics.averages(rows))]
    assert shades == [None, 0.02, 0.1, None]


def test_a_fine_tune_says_what_it_started_from(tmp_path):
    """In a column of its own: the parent's run, step and scheme."""
    records = []
    parents = {
        "tuned": {"run": "runs/<rope>", "step": 500, "position": "rope:base=500"},
        "plain": None,
    }
    for name, parent in parents.items():
        (tmp_path / name).mkdir()
        config = {"position": "rope", "parent": parent, "seed": 0}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        records.append(samples.record("rope", 64, 1.0, run=str(tmp_path / name)))
    records.append(samples.record("rope", 64, 1.0, run=str(tmp_path / "elsewhere")))
    html = runs.runs(records)
    heads = re.findall(r'<th scope="col">(.*?)</th>', html)
    assert heads[:4] == ["run", "trained as", "started from", "seed"]
    column = [
        re.findall(r"<td>(.*?)</td>", row)[1] for row in re.findall(r"<tr>.*?</tr>", html)[1:]
    ]
    assert column == ["runs/&lt;rope&gt; at step 500, rope:base=500", "random weights", "–"]


@pytest.mark.parametrize(
    "name, parts",
    [
        ("pi:factor=4,original_length=128", ["pi:", "factor=4,", "original_length=128"]),
        ("runs/pi_tuned_s0", ["runs/", "pi_tuned_s0"]),
        ("rope|rope+log_n", ["rope|", "rope+", "log_n"]),
        ("nope (rope)", ["nope ", "(rope)"]),
    ],
)
def test_names_break_between_their_parts_only(name, parts):
    assert markup.breakable(name).split("<wbr>") == parts
    assert captions.in_lines(name, 200) == [name]
    for width in (8, 20, 24):
        lines = captions.in_lines(name, width)
        whole = [part.strip() for part in parts if len(part) <= width]
        assert all(any(part in line for line in lines) for part in whole)
        assert all(len(line) <= width for line in lines)


def test_a_name_without_a_place_to_break_is_cut_where_the_line_ends():
    assert captions.in_lines("x" * 30, 24) == ["x" * 24, "x" * 6]
    assert captions.in_lines("", 24) == [""]


def test_every_table_can_say_that_it_goes_on(tmp_path):
    table = grids.scrolling(markup.tag("table", "<"), "a <label>")
    assert table == (
        '<div class="frame"><p class="cue" aria-hidden="true">Wider than the page: scroll sideways →'
        '</p><div class="scroll" tabindex="0" role="region" aria-label="a &lt;label&gt;">'
        "<table>&lt;</table></div></div>"
    )
