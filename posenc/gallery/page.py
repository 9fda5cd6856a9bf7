"""gallery.html: the pictures with sliders, on one page that needs nothing else.

page.js draws what grids.py computed; page.css is how it looks. Plotly stands in the page once.
"""

import dataclasses
import json
from html import escape
from pathlib import Path

import posenc
from posenc.gallery import grids, permutation, rotary, style
from posenc.gallery.pictures import PICTURES

HERE = Path(__file__).parent
START = {"position": 10, "length": 3, "factor": 3, "base": 2}  # indices into grids.SLIDERS


@dataclasses.dataclass(frozen=True)
class Section:
    """A picture of the page: which one of PICTURES it is, its words here, its controls and plots."""

    name: str
    text: str
    controls: tuple[str, ...]
    plots: tuple[str, ...]  # what each plot shows, for those who cannot see it


SECTIONS = (
    Section(
        "sinusoid_table",
        "Each row is the vector added to the embedding of a token, 64 channels wide: sines and "
        "cosines in pairs, the fastest on the left. Below is the row at the position chosen. A larger "
        "base slows every pair but the first.",
        ("position", "base"),
        ("the table as a heat map", "the row at the position chosen"),
    ),
    Section(
        "rotation",
        "RoPE reads two channels as a point of a plane and turns it by a fixed angle for every token. "
        "A head of eight channels has four pairs: the hands of a clock that tells the position.",
        ("position", "base"),
        ("four arrows, one for each pair, turned by position",),
    ),
    Section(
        "inner_product",
        "The same query and key, at every distance. Move the key: under RoPE the curve stays where it "
        "is, since only the distance counts. Sinusoids added to the two vectors give another curve "
        "at every place.",
        ("position", "base"),
        ("q·k against distance under rope", "q·k against distance under sinusoidal"),
    ),
    Section(
        "rotation_matrix",
        "All turns of one position together are an orthogonal matrix, 0 in the empty places. With "
        "neighbouring channels paired it is block-diagonal, as in the paper; with channel t paired "
        "with t + 4 (half), as most code has it, its channels are reordered.",
        ("position", "base", "pairing"),
        ("the matrix that turns a query of eight channels",),
    ),
    Section(
        "scalings",
        "Tokens per full turn of each of the 64 pairs of a head, for a training length of 4,096. PI "
        "slows all pairs by the factor; NTK the slowest, by equal ratios from the fastest on; YaRN and "
        "llama3 only those that turn seldom within the training length. LongRoPE's list comes from "
        "a search; the one here was not searched.",
        ("factor", "base"),
        (
            "wavelength against pair for rope and five scalings",
            "what each divides the frequency of a pair by",
        ),
    ),
    Section(
        "unseen_angles",
        "A pair that made a full turn within the 4,096 tokens of training has seen every angle; a "
        "slower one has seen an arc, and leaves it at a greater length unless its frequency is divided "
        "enough. Set the factor to the length and see which pairs remain outside under NTK.",
        ("length", "factor", "base"),
        ("which pairs leave the arc seen in training, by scheme",),
    ),
    Section(
        "decay",
        "q·k for a key like its query, both of length 1, quick waves averaged away: it falls with "
        "distance up to the longest wavelength. A larger base or factor stretches the fall; YaRN also "
        "lifts it by its temperature, as LongRoPE does.",
        ("factor", "base"),
        ("q·k against distance for rope and five scalings",),
    ),
    Section(
        "bias_matrices",
        "What is added to the logit of a query and a key, as a matrix, and for the last query against "
        "distance. Texts of more than 64 tokens are drawn at 64 of their positions. T5, KERPLE and FIRE "
        "are learned: unless they are called trained, these are their random starts.",
        ("scheme", "head", "length"),
        ("the bias as a matrix of query and key", "the last query's bias against distance"),
    ),
    Section(
        "permutation",
        "One layer of attention with random weights in which every token sees all others. Shuffle "
        "the tokens and put the outputs back in order: without positions (nope) nothing has changed; "
        "with any position scheme, or a causal mask alone, it has.",
        ("shuffled",),
        ("outputs", "outputs after shuffling, put back in order", "their difference"),
    ),
)
UNITS = {
    "position": "position (tokens)",
    "length": "length (training lengths)",
    "factor": "factor of the scaling",
    "base": "base of the frequencies",
    "head": "head",
    "scheme": "scheme",
    "shuffled": "scheme",
    "pairing": "pairing of channels",
}


def build(schemes: dict[str, posenc.Scheme]) -> str:
    """The page, showing these bias schemes; the same text for the same versions of the libraries."""
    from plotly.offline import get_plotlyjs

    choices = {
        "scheme": tuple(schemes),
        "shuffled": tuple(permutation.DRAWN),
        "pairing": grids.PAIRINGS,
    }
    known = {picture.name: picture for picture in PICTURES}
    body = "".join(section(s, known[s.name], choices, schemes) for s in SECTIONS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Position schemes, drawn</title><style>{read('page.css')}</style></head>"
        "<body><main><h1>Position schemes, drawn</h1>"
        "<p>How a language model is told where its tokens stand, from the code that trains it. "
        "Sliders of the same name move together.</p>"
        f"{body}</main>\n"
        f'<script type="application/json" id="data">{json_text(page_data(schemes))}</script>\n'
        f'<script id="plotly">{get_plotlyjs()}</script>\n'
        f"<script>{read('page.js')}</script></body></html>\n"
    )


def section(s: Section, picture, choices: dict, schemes: dict[str, posenc.Scheme]) -> str:
    heads = max(scheme.dims.H for scheme in schemes.values())
    controls = "".join(control(s.name, name, choices, heads) for name in s.controls)
    plots = "".join(
        f'<div class="plot" role="img" aria-label="{escape(words)}"></div>' for words in s.plots
    )
    return (
        f'<section id="{s.name}"><h2>{escape(picture.title)}</h2><p>{escape(s.text)}</p>'
        f'<p class="quiet">{escape(picture.paper)}</p><div class="controls">{controls}</div>'
        f'<div class="plots of{len(s.plots)}">{plots}</div>'
        '<p class="says" aria-live="polite"></p></section>\n'
    )


def control(section_name: str, name: str, choices: dict, heads: int) -> str:
    """A slider or a choice with its label; those of one name share their state."""
    where = f"{section_name}-{name}"
    label = f'<label for="{where}">{UNITS[name]}</label>'
    if name in choices:
        options = "".join(f"<option>{escape(choice)}</option>" for choice in choices[name])
        return f'<div>{label}<select id="{where}" data-control="{name}">{options}</select></div>'
    last = (heads if name == "head" else len(grids.SLIDERS[name])) - 1
    return (
        f'<div>{label}<input type="range" id="{where}" data-control="{name}" min="0" max="{last}" '
        f'step="1" value="{START.get(name, 0)}"><output for="{where}"></output></div>'
    )


def page_data(schemes: dict[str, posenc.Scheme]) -> dict:
    """What page.js reads: numbers, the values of the sliders, names and colours."""
    far = rotary.far_distances(60, 12).mean(axis=1)
    return {
        "arrays": {name: grids.pack(array) for name, array in grids.arrays(schemes).items()},
        "sliders": grids.SLIDERS,
        "start": START,
        "family": rotary.FAMILY,
        "train_length": rotary.ROTARY.train_length,
        "far": [round(float(distance), 2) for distance in far],
        "bias_lengths": {name: scheme.dims.train_length for name, scheme in schemes.items()},
        "shuffled": list(permutation.DRAWN),
        "pairings": grids.PAIRINGS,
        "colours": style.COLOURS,
        "pairs": style.PAIRS,
        "theta": [
            posenc.create("rope", rotary.FEW, base=base).inverse_frequencies().tolist()
            for base in grids.SLIDERS["base"]
        ],
    }


def json_text(data: dict) -> str:
    """JSON that may stand inside a script element, whatever the names in it hold."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")


def read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
