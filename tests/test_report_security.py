"""No text of a record, a config or a run can become markup or script, and nothing is fetched."""

import json
import re

import pytest
import report_samples as samples

from evaluation.plots import plot_curves
from evaluation.report import write_report
from evaluation.report.markup import data_block, tag
from evaluation.tables import format_table
from posenc.gallery import page as gallery

LINES = "\u2028\u2029"  # ends of lines in scripts of old, none in JSON
ATTACKS = [
    "<script>hit()</script>",
    "</script><script>hit()</script>",
    "</title></style><img src=x onerror=hit()>",
    "\" onmouseover=\"hit()' autofocus onfocus='hit()",
    "<!--<script>",
    "]]><svg onload=hit()>",
    "{{TITLE}}{{DATA}}",
    f"a{LINES}b",
    "javascript:hit()",
    "&lt;script&gt;&amp;",
]


def hostile(folder, text):
    """A report in which every text that a file can bring in is this one."""
    run = folder / "run"
    run.mkdir()
    nested = {"run": text, "step": text, "position": text}
    config = {"position": text, "seed": text, text: text, "train": {text: text}, "parent": nested}
    config |= {"provenance": {"git_revision": text}}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "other").mkdir()
    (folder / "other" / "config.json").write_text("{}")
    about = {"config_hash": text}
    records = [samples.record(text, n, 2.0, run=str(run), **about) for n in (64, 128)]
    records += [samples.record(text, 64, 2.0, run=str(folder / "other"), **about)]
    records += [samples.record(text, 256, None, run=str(run), **(about | {"reason": text}))]
    records += [samples.record(text, 64, 2.0, run=text, **about)]
    probe = {"accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6, "answers": 9}
    probe |= {"by_depth": [[0.5, 0.5, 9]], "protocol": f"probe:{text}", "run": text}
    records += [samples.record(text, 64, 2.0, **about, **probe)]
    names = ("label", "a", "b", "scheme")
    rows = [{k: text if k in names else v for k, v in r.items()} for r in samples.statistics()]
    rows = [r | {"clusters": text} for r in rows]
    samples.write_lines(folder / "statistics.jsonl", rows)
    rows = [row | {"run": text, "scheme": text} for row in samples.diagnostics()[:4]]
    samples.write_lines(folder / "diagnostics.jsonl", rows)
    (folder / "curves.svg").write_text("<svg></svg>")  # the picture has a test of its own
    write_report(records, folder)
    return records, (folder / "report.html").read_text(encoding="utf-8")


def structure(html):
    """What a browser would make of the page: its elements and attributes, without texts."""
    from html.parser import HTMLParser

    found = []

    class Structure(HTMLParser):
        def handle_starttag(self, tag, attrs):
            kept = [(k, v) for k, v in attrs if k in ("src", "href") or k.startswith("on")]
            found.append((tag, *kept, *sorted({k for k, _ in attrs})))

        handle_startendtag = handle_starttag

        def handle_comment(self, data):
            found.append(("comment", data))

        def handle_pi(self, data):
            found.append(("instruction", data))

        def unknown_decl(self, data):
            found.append(("declaration", data))

    parser = Structure()
    parser.feed(html)
    parser.close()
    return [entry for entry in found if entry[0] not in ("wbr", "comment")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The elements of the same page where every text is a harmless word."""
    return structure(hostile(tmp_path_factory.mktemp("plain"), "word")[1])


@pytest.mark.parametrize("text", ATTACKS)
def test_a_text_adds_no_element_attribute_or_script(tmp_path, plain, text):
    records, html = hostile(tmp_path, text)
    made = structure(html)
    assert made == plain
    assert not any(name.startswith("on") for e in made for name in e[1:] if isinstance(name, str))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert not set("<>&" + LINES) & set(data[1])
    assert json.loads(data[1])["curves"][0]["curves"][0]["label"].startswith(text)
    assert format_table(records)  # and the table for the terminal is made


@pytest.mark.parametrize("text", ATTACKS)
def test_the_picture_is_well_formed_and_holds_no_script(tmp_path, text):
    from xml.etree import ElementTree

    plot_curves([samples.record(text, n, 2.0) for n in (64, 128)], tmp_path)
    tree = ElementTree.parse(tmp_path / "curves.svg")
    names = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not names & {"script", "image", "foreignObject", "a", "img"}
    texts = "".join("".join(element.itertext()) for element in tree.iter())
    assert "".join(text.split())[:20] in "".join(texts.split())


def references(html):
    """Everything in our part of a page by which a browser would fetch something."""
    own = re.sub(
        r"<script(?: id=\"plotly\")?>(?:(?!</script>).)*plotly\.js v.*?</script>",
        "",
        html,
        flags=re.DOTALL,
    )
    assert len(own) < len(html) - 1_000_000  # plotly's own code is out
    found = re.findall(r"""(?:src|href|action|data|poster)\s*=\s*["']?([^"'\s>]+)""", own)
    found += re.findall(r"url\(([^)]*)\)", own)
    code = re.findall(
        r"@import|\bimport\s*\(|fetch\s*\(|XMLHttpRequest|WebSocket|sendBeacon|Worker\(|eval\(|new Function",
        own,
    )
    return [r for r in found if not r.startswith(("#", "data:,"))], code


def test_the_report_names_nothing_to_be_fetched(tmp_path):
    records = samples.write_everything(tmp_path)
    write_report(records, tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    outside, code = references(html)
    assert [r for r in outside if re.match(r"['\"]?(\w+:|//)", r)] == [] and code == []


def test_the_gallery_names_nothing_to_be_fetched(monkeypatch):
    from posenc.gallery import biases, grids

    monkeypatch.setattr(grids, "arrays", lambda schemes: {})
    html = gallery.build(biases.new_schemes())
    outside, code = references(html)
    assert [r for r in outside if re.match(r"['\"]?(\w+:|//)", r)] == [] and code == []


def test_attributes_are_quoted_and_names_of_choices_escaped():
    for text in ATTACKS:
        made = tag("td", text, title=text, data_x=text)
        assert made.count('"') == 4 and made.count("<") == 2 and made.count(">") == 2
        block = data_block("data", {text: text})
        inside = block[block.index(">") + 1 : block.rindex("</")]
        assert not set("<>&" + LINES) & set(inside) and json.loads(inside) == {text: text}
        assert "<" not in gallery.json_text({text: text})
        chosen = gallery.control("s", "scheme", {"scheme": (text,)}, 1)
        assert chosen.count("<") == gallery.control("s", "scheme", {"scheme": ("a",)}, 1).count("<")
