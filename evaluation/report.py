"""report.html: the picture, the figures and what they mean, on one page that stands by itself."""

import os
import re
from html import escape
from pathlib import Path

from evaluation.plots import plot_curves
from evaluation.records import replacing
from evaluation.tables import MARKS, UNITS, Block, blocks, counted, span, troubles

READING = (
    "Each curve shows how hard a model finds the text when it may look that far back: lower is "
    "better, and a perplexity of p is the uncertainty of an even choice among p tokens.",
    "Up to the training length, marked by its vertical line, the models are on known ground; what "
    "happens to the right of it is extrapolation.",
    "A thin dashed line, where there is one, is the same model on the same tokens with only the "
    "training length of context: a curve below it gains from the longer context, one on it ignores "
    "the rest, and one above it is harmed.",
    "Bands are 95 % intervals for the text (or the range over seeds); ",
)
SHARED = (
    "because all curves share their targets, two that overlap can still differ reliably, which a "
    "paired comparison shows."
)
UNSHARED = (
    "these runs were scored on different targets (other lengths, tokens or text), so compare curves "
    "of one run only."
)
READING_BY_PROTOCOL = {
    "fixed": "The same target tokens at every length, so only the context grows.",
    "disjoint": "Windows side by side, every token scored once. Part of the gain with length is "
    "only that fewer tokens sit near the start of a window.",
    "sliding": "Overlapping windows, every token scored once, most of them with a long context.",
    "position": "Loss by position in the window, here the buckets that end at the columns' heads; "
    "all buckets are in positions.csv.",
    "recurrent": "Documents read in segments of the training length, every token scored once; the "
    "length is the attention span, a segment and the memory of the tokens before it. The memory "
    "has itself seen further back, layer by layer.",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --quiet: #5f5f5f; --rule: #dcdcdc;
  --page: #fff; --card: #f6f6f4; --mark: #a33a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --quiet: #a8a8a8; --rule: #3a3a3a;
  --page: #161616; --card: #202020; --mark: #ff9d66; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .4rem; }
p, li { max-width: 44rem; } p { margin: .4rem 0; }
.quiet { color: var(--quiet); font-size: .92rem; }
figure { margin: 1.4rem 0; background: #fff; border-radius: 8px; padding: .6rem; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 34rem; height: auto; }
.scroll { overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px; margin-top: .7rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .6rem; text-align: right; white-space: nowrap;
  border-top: 1px solid var(--rule); }
thead th { border-top: 0; background: var(--card); font-weight: 600; vertical-align: bottom; }
th[scope=row], td.name, thead th.name { text-align: left; font-weight: 400; }
th[scope=row] { font-weight: 600; }
td small, th small { display: block; color: var(--quiet); font-weight: 400; }
th[scope=row] { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; }
td.bad { color: var(--mark); } code { font-size: .92em; overflow-wrap: anywhere; }
"""


def write_report(records: list[dict], out_dir: str | os.PathLike) -> None:
    """Writes report.html with curves.svg of the same folder, which is drawn if it is not there."""
    out_dir = Path(out_dir)
    if not (out_dir / "curves.svg").exists():
        plot_curves(records, out_dir)
    svg = (out_dir / "curves.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]  # no XML head or doctype inside HTML
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # the width of the page, not the width in points of the file
    svg = re.sub(r'^<svg([^>]*?) height="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'^<svg([^>]*?) width="[^"]*"', r"<svg\1", svg, count=1)
    svg = svg.replace("<svg", '<svg role="img" aria-label="Perplexity against length"', 1)
    counts = [counted([len({r.get(k) for r in records})], k) for k in ("scheme", "run")]
    lengths = span(r["length"] for r in records if r["protocol"] != "position")
    summary = f"{', '.join(counts)}, lengths {lengths}"
    sentences = [*READING[:-1], READING[-1] + (SHARED if same_targets(records) else UNSHARED)]
    reading = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    parts = [
        f"<h1>Perplexity past the training length</h1><p class='quiet'>{escape(summary)}</p>",
        f"<figure>{svg}</figure>",
        f"<h2>How to read this</h2><ul>{reading}</ul>",
        *map(_table, blocks(records)),
        _troubles(records),
        _runs(records),
    ]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Perplexity past the training length</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )
    with replacing(out_dir / "report.html") as path:
        path.write_text(page, encoding="utf-8")


def _table(block: Block) -> str:
    heads = [f"<th scope='col'>{escape(block.header(column))}</th>" for column in block.columns]
    body = []
    for run, scheme, cells in block.rows:
        # The run's last name, as small print: its path would push the figures off a narrow screen.
        name = str(run).rstrip("/").rsplit("/", 1)[-1]
        title = escape(str(run), quote=True)
        names = f'{escape(str(scheme))}<small title="{title}">{escape(name)}</small>'
        body.append(f"<tr><th scope='row'>{names}</th>{''.join(map(_cell, cells))}</tr>")
    star = "<p class='quiet'>* training length</p>" if any("*" in head for head in heads) else ""
    return (
        f"<h2>{escape(block.protocol.capitalize())} protocol: {UNITS}</h2>"
        f"<p>{escape(READING_BY_PROTOCOL[block.protocol])}</p>"
        f"<p class='quiet'>{escape(block.facts.capitalize())}. Small print: 95 % interval.</p>"
        f"<div class='scroll'><table><thead><tr><th class='name' scope='col'>scheme<small>run</small></th>"
        f"{''.join(heads)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>{star}"
    )


def _cell(record: dict | None) -> str:
    if record is None:
        return "<td>–</td>"
    if record["status"] != "ok":
        reason = escape(str(record["reason"]), quote=True)
        return f'<td class="bad" title="{reason}">{escape(MARKS[record["status"]])}</td>'
    if record["ci_low"] is None:
        return f"<td>{record['nll']:.3f}</td>"
    low, high = record["ci_low"], record["ci_high"]
    return f"<td>{record['nll']:.3f}<small>{low:.3f} – {high:.3f}</small></td>"


def _troubles(records: list[dict]) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in troubles(records))
    return f"<h2>Points without a figure</h2><ul>{lines}</ul>" if lines else ""


def _runs(records: list[dict]) -> str:
    names = ("run", "seed", "step", "train_length", "config_hash")
    rows = dict.fromkeys(tuple(record.get(name) for name in names) for record in records)
    body = ""
    for run, *values in rows:
        cells = "".join(f"<td>{'–' if v is None else escape(str(v))}</td>" for v in values[:-1])
        code = "–" if values[-1] is None else f"<code>{escape(str(values[-1]))}</code>"
        body += f"<tr><th scope='row'>{escape(str(run))}</th>{cells}<td>{code}</td></tr>"
    heads = "<th class='name' scope='col'>run</th>" + "".join(
        f"<th scope='col'>{name}</th>" for name in ("seed", "step", "training length", "config")
    )
    return (
        f"<h2>Runs</h2><p class='quiet'>Each run's whole configuration is its config.json.</p>"
        f"<div class='scroll'><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def same_targets(records: list[dict]) -> bool:
    """Whether all fixed points have as many targets, from as many documents, at one stride."""
    fixed = [r for r in records if r["protocol"] == "fixed" and r["status"] == "ok"]
    return len({(r["tokens_scored"], r["documents"], r["stride"]) for r in fixed}) <= 1
