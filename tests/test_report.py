"""report.html: what it holds, that it holds nothing of anyone else's, and that it is always the same."""

import json
import re
from html.parser import HTMLParser

import pytest
import report_samples as samples

from evaluation.report import write_report
from evaluation.report.looks import CONTRAST, _contrast, on_dark
from evaluation.report.markup import data_block, tag
from evaluation.report.measured import measured
from evaluation.styles import SCHEME_STYLE

PARTS = ["curves", "diagnostics", "matrix", "differences", "positions", "probes", "runs"]


class Page(HTMLParser):
    """Checks that tags close in order; collects text, attributes, and the scripts' JSON."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.links, self.names = [], [], [], []
        self.sections, self.handlers, self.data = [], [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "wbr", "br", "input"):
            self.open.append(tag)
        self.note(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.note(tag, attrs)

    def note(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href", "action")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        self.names.append(tag)
        self.sections += [v for k, v in attrs if tag == "section" and k == "id"]
        self.is_data = tag == "script" and ("type", "application/json") in attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.data += data if self.is_data else ""
        elif self.open[-1:] != ["style"]:
            self.words.append(data)


def read(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    page.text, page.data = "".join(page.words), json.loads(page.data)
    return text, page


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    records = samples.write_everything(folder)
    write_report(records, folder)
    return folder, records


def test_the_report_holds_every_part(everything):
    text, page = read(everything[0])
    assert page.sections == PARTS
    for words in (
        "2.280",  # rope at 128, the mean of its three seeds
        "2.180 – 2.350",  # and its interval over seeds and text
        "−1.540",  # alibi against rope at 1024
        "undef.",
        "length 128 is past max_length=64",
        "cropped 64",
        "64*",
        "Is the extra context used?",
        "undecided",
        "Entropy, mean over layers and heads",
        "passkey: share of answers wholly right",
        "hashrope",
        "Fixed protocol, stride 4096, 3360 targets in blocks of 32, 3 documents, 3 seeds, "
        "intervals over 105 windows; a curve is the mean of 3 seeds.",
        "Protocol probe:passkey, 200 answers per run and length, 1 seed per curve.",
        "over 16 windows of each length, 512 query rows, 1 seed.",
    ):
        assert words in page.text, words
    assert "viewport" in text and "prefers-color-scheme: dark" in text
    assert text.count("<svg") >= 1 and page.names.count("noscript") == 2
    assert text.count("plotly.js v") == 1  # inlined, once


def test_the_data_of_the_plots(everything):
    data = read(everything[0])[1].data
    assert [view["name"] for view in data["curves"]] == ["fixed", "disjoint", "sliding"]
    curves = {curve["label"]: curve for curve in data["curves"][0]["curves"]}
    assert list(curves) == list(samples.LOSSES)
    length, nll, low, high, bits, interval, facts, why = curves["yarn:factor=4"]["points"][1]
    assert (length, nll, low, high, why) == (128, 1.92, 1.82, 1.99, "")
    assert bits == pytest.approx(1 / 0.6931472) and interval.startswith("95 % interval for seeds")
    assert facts == "3360 targets, 3 documents, 105 windows, factor 4"
    assert curves["learned"]["note"] == "undefined past 64"
    assert curves["learned"]["points"][1][1:4] == [None, None, None]
    assert curves["rope"]["colour"] == SCHEME_STYLE["rope"][0]
    assert data["curves"][1]["curves"][0]["points"][0][5].startswith("range of 3 seeds")
    assert data["curves"][1]["curves"][0]["cropped"] is None
    assert len(data["position"][0]["curves"][0]["points"]) > 30
    readings = {reading["label"]: reading for reading in data["diagnostics"]["readings"]}
    assert "unseen_angles" in readings["rope"]["figures"]
    assert "unseen_angles" not in readings["alibi"]["figures"]
    (length, layers), *_ = readings["rope"]["figures"]["entropy"]
    assert length == 64 and len(layers) == 4 and len(layers[0]) == 4
    passkey, copy = data["probes"]
    assert passkey["curves"][0]["depths"][0][1][0][0] == 0.0 and not copy["curves"][0]["depths"]


def test_it_needs_nothing_from_elsewhere(everything):
    text, page = read(everything[0])
    assert all(link.startswith(("#", "data:,")) for link in page.links), page.links
    own = text[: text.index("plotly.js v")] + text[text.rindex("window.Plotly = Plotly") :]
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(", own)
    names = {section for section in page.sections}
    assert {link[1:] for link in page.links if link.startswith("#")} >= names


def test_the_same_files_give_the_same_bytes(everything, tmp_path):
    folder, records = everything
    before = (folder / "report.html").read_bytes()
    write_report(records, folder)
    assert (folder / "report.html").read_bytes() == before
    write_report(samples.write_everything(tmp_path), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before


def parts(records, folder, statistics=(), diagnostics=()):
    if statistics:
        samples.write_lines(folder / "statistics.jsonl", statistics)
    if diagnostics:
        samples.write_lines(folder / "diagnostics.jsonl", diagnostics)
    (folder / "curves.svg").write_text("<svg></svg>")  # drawing it is the most of a report's time
    write_report(records, folder)
    return read(folder)[1]


def test_a_part_without_data_is_not_there(tmp_path):
    plain = samples.loss_records()
    page = parts(plain, tmp_path)
    assert page.sections == ["curves", "matrix", "runs"]
    assert "95 % intervals for the text; because all curves share" in page.text
    assert "figures" not in (page.data["diagnostics"] or {})
    page = parts([r for r in plain if r["protocol"] == "fixed"][:5], tmp_path)
    assert "cropped" not in page.text.replace("training length of context", "").lower()
    assert "without a figure" not in page.text


@pytest.mark.parametrize(
    "records, expected",
    [
        ([], ["runs"]),
        (samples.probe_records(), ["probes", "runs"]),
        (samples.position_records(), ["positions", "runs"]),
        ([samples.record("learned", 128, None)], ["curves", "matrix", "runs"]),
        ([samples.record("rope", 64, 1e4)], ["curves", "matrix", "runs"]),
        (
            [samples.record("rope", 64, 2.0, ci_low=None, ci_high=None, clusters="1 document")],
            ["curves", "matrix", "runs"],
        ),
        (
            [samples.record("rope", 64, 2.0, bits_per_byte=None, train_length=None)],
            ["curves", "matrix", "runs"],
        ),
    ],
)
def test_it_copes(tmp_path, records, expected):
    page = parts(records, tmp_path)
    assert page.sections == expected
    assert ("Right answers past" in page.text) == (expected[0] == "probes")


def test_statistics_and_diagnostics_alone(tmp_path):
    context = [row for row in samples.statistics() if row["kind"] == "context"]
    page = parts(samples.loss_records(), tmp_path, context, samples.diagnostics()[:4])
    assert page.sections == ["curves", "diagnostics", "matrix", "differences", "runs"]
    assert "Row minus column" not in page.text


def test_differences_are_turned_for_the_other_row(tmp_path):
    row = {"kind": "difference", "length": 64, "a": "rope", "b": "pi", "difference": -0.25}
    row |= {"ci_low": -0.375, "ci_high": -0.125, "verdict": "lower"}
    row |= {"seeds": 1, "targets": 9, "clusters": "9 documents"}
    page = parts(samples.loss_records(), tmp_path, [row])
    assert "−0.250" in page.text and "−0.375 to −0.125" in page.text
    assert "+0.250" in page.text and "+0.125 to +0.375" in page.text
    zero = row | {"difference": -0.0, "ci_low": -0.0, "ci_high": 0.0, "verdict": "undecided"}
    page = parts(samples.loss_records(), tmp_path, [zero])
    assert "0.000 to 0.000" in page.text and "−0.000" not in page.text


def test_curves_that_a_table_does_not_have_are_named(tmp_path):
    shared = {"seeds": 1, "targets": 9, "clusters": "9 documents", "ci_low": 0.125, "ci_high": 0.5}
    row = shared | {"kind": "difference", "difference": 0.25, "verdict": "higher", "a": "rope"}
    pairs = [row | {"length": n, "b": b} for n, b in ((64, "pi"), (64, "learned"), (128, "pi"))]
    curves = [
        {"kind": "curve", "label": n, "length": 64, "runs": []} for n in ("rope", "pi", "learned")
    ]
    gain = shared | {"kind": "context", "length": 128, "gain": 0.25, "answer": "yes"}
    gains = [gain | {"label": n} for n in ("rope", "pi")]
    page = parts(samples.loss_records(), tmp_path, [*curves, *pairs, *gains])
    assert "No figure at length 128: learned." in page.text
    assert "No figure at length 64" not in page.text
    assert "No figure with more context than the training length: learned." in page.text


def test_a_seed_that_failed_takes_its_point_away():
    records = samples.loss_records((0, 1))
    bad = samples.record("rope", 128, None, 1, status="out_of_memory", reason="128 GiB")
    records = [
        bad if (r["run"], r["scheme"], r["length"]) == ("runs/rope_s1", "rope", 128) else r
        for r in records
    ]
    (rope,) = [m for m in measured(records, "fixed", []) if m.curve.scheme == "rope"]
    assert rope.points[1].nll is None and rope.points[1].reason == "128 GiB"
    assert rope.points[2].interval == "range of 2 seeds"
    assert (rope.points[2].low, rope.points[2].high) == (2.81, pytest.approx(2.83))


def test_two_level_intervals_belong_to_their_runs():
    """Another run of the same scheme has an interval of its own."""
    records = samples.loss_records((0, 1))
    other = [row | {"runs": ["runs/else"]} for row in samples.statistics(2)]
    for m in measured(records, "fixed", other):
        assert all(p.interval in ("", "range of 2 seeds") for p in m.points)
    for m in measured(records, "fixed", samples.statistics(2)):
        assert all("seeds and text" in p.interval for p in m.points if p.nll is not None)
    for m in measured(records, "disjoint", samples.statistics(2)):
        assert all("seeds and text" not in p.interval for p in m.points)


def test_configurations_are_shown_where_they_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for scheme, steps in (("alibi", 500), ("rope", 700)):
        folder = tmp_path / "runs" / f"{scheme}_s0"
        folder.mkdir(parents=True)
        config = {"position": scheme, "train": {"steps": steps, "length": 64}, "seed": 0}
        config |= {"provenance": {"git_revision": "0123456789abcdef+changes"}}
        (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "runs" / "learned_s0").mkdir()
    (tmp_path / "runs" / "learned_s0" / "config.json").write_text("{ broken")
    page = parts(samples.loss_records(), tmp_path)
    text = re.sub(r"\s+", " ", page.text)
    assert "0123456789ab" in text and '"git_revision": "0123456789abcdef+changes"' in text
    assert "train.steps" in text and "train.length" not in text
    assert "Not readable when this page was made: config.json of runs/sinusoidal_s0, " in text


def test_names_stay_text(tmp_path):
    write_report(samples.hostile_files(tmp_path), tmp_path)
    text, page = read(tmp_path)
    assert page.text.count(samples.HOSTILE) >= 8
    assert "img" not in page.names and page.handlers == []
    assert page.names.count("script") == 3  # the data, plotly, and the page's own
    assert "window.hit=1</script>" not in text
    assert page.data["curves"][0]["curves"][0]["label"] == samples.HOSTILE


def test_markup_escapes_all_but_markup():
    made = tag("td", "<b>", tag("i", "&"), None, title="\"'<", data_x=1, hidden=False, open=True)
    assert made == ('<td title="&quot;&#x27;&lt;" data-x="1" open>&lt;b&gt;<i>&amp;</i></td>')
    block = data_block("data", {"a": "</script><!--&\u2028", "b": [1.5, None]})
    inside = block[block.index(">") + 1 : block.rindex("<")]
    assert not set("<>&\u2028") & set(inside)
    assert json.loads(inside) == {"a": "</script><!--&\u2028", "b": [1.5, None]}


def test_every_colour_is_readable_on_the_dark_page():
    for colour, _, _ in SCHEME_STYLE.values():
        shown = on_dark(colour)
        assert _contrast([int(shown[i : i + 2], 16) for i in (1, 3, 5)]) >= CONTRAST
