"""The pictures and their words, as PNG files and as a page of the documents."""

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

from posenc.gallery import draw_biases, draw_rotary, style


@dataclasses.dataclass(frozen=True)
class Picture:
    """One picture: a file name, a title, where the idea is from, words, and what draws it."""

    name: str
    title: str
    paper: str
    text: str
    draw: Callable
    size: tuple[float, float]  # inches


PICTURES = (
    Picture(
        "sinusoid_table",
        "The sinusoid table",
        "Vaswani et al. 2017",
        "Row p is the vector added to the embedding of the token at position p: sines and cosines in "
        "pairs, the fastest on the left. Neighbours differ in the fast channels, distant positions in "
        "the slow ones, like the hands of a clock.",
        draw_rotary.sinusoid_table,
        (8.2, 3.9),
    ),
    Picture(
        "rotation",
        "A query turns with its position",
        "Su et al. 2021",
        "RoPE reads two channels as a point of a plane and turns it by a fixed angle for every token. "
        "These are the four pairs of a head of eight channels, at positions 0 (grey arrow) to 32 (black "
        "arrow), drawn as a spiral so that turns stay apart: each pair turns ten times more slowly than "
        "the one before.",
        draw_rotary.rotation,
        (8.2, 2.6),
    ),
    Picture(
        "inner_product",
        "Only the distance counts",
        "Su et al. 2021",
        "Turning the query at i and the key at j leaves an inner product that depends on i − j alone: "
        "wherever the key stands, RoPE draws the same curve. Sinusoids added to the two vectors draw "
        "another curve for every place.",
        draw_rotary.inner_product,
        (8.2, 3.2),
    ),
    Picture(
        "wavelengths",
        "RoPE's wavelengths",
        "Su et al. 2021",
        "Pair t of a head of 128 channels turns once in 2π·base^(2t/128) tokens. Pairs above the dashed "
        "line make no full turn within the training length, so training sees only an arc of their "
        "circle. A larger base slows every pair but the first.",
        draw_rotary.wavelengths,
        (8.2, 3.6),
    ),
    Picture(
        "scalings",
        "How the scalings bend the frequencies",
        "Chen et al. 2023 (PI); bloc97 2023 (NTK); Peng et al. 2023 (YaRN); Grattafiori et al. 2024 "
        "(llama3); Ding et al. 2024 (LongRoPE)",
        "For a text 8 times longer, PI divides every frequency by 8. NTK keeps the fastest pair and "
        "divides the slowest by 8, by equal ratios between. YaRN and llama3 keep the pairs that turn "
        "often within the training length, divide those that do not turn once, and join the two. "
        "LongRoPE takes a divisor for each pair from a search; the list here was not searched.",
        draw_rotary.scalings,
        (8.2, 3.6),
    ),
    Picture(
        "unseen_angles",
        "Angles that training never saw",
        "Chen et al. 2023; Peng et al. 2023",
        "A pair that made a full turn in training has seen every angle. A slower one has seen an arc, "
        "and past the training length it leaves it, unless its frequency is divided enough. NTK "
        "keeps only the slowest pair inside, which is why it is used with a factor above the ratio of "
        "lengths. (Lengths are counted in steps of one token; a factor of 8 serves up to 8 training "
        "lengths.)",
        draw_rotary.unseen_angles,
        (8.2, 3.3),
    ),
    Picture(
        "rotation_matrix",
        "RoPE as a matrix",
        "Su et al. 2021, equation 15",
        "All turns of one position together are an orthogonal matrix, here that of position 7 for eight "
        "channels (white is 0). With neighbouring channels paired it is block-diagonal, as in the paper; "
        "with channel t paired with t + 4, as most code has it, it is the same matrix with its channels "
        "reordered.",
        draw_rotary.rotation_matrix,
        (8.2, 3.9),
    ),
    Picture(
        "decay",
        "Long-range decay",
        "Su et al. 2021, section 3.4.3",
        "Left, the paper's bound on q·k, whatever the tokens: it falls with distance, in waves. Right, "
        "q·k itself for a key like its query, its quick waves averaged away: it falls up to the longest "
        "wavelength. A factor of 8 shifts the slow part of the curve outwards (PI all of it), YaRN also "
        "lifts it by its temperature, as LongRoPE does, and xPos (Sun et al. 2023) adds a decay of its own. The dashed "
        "line is the training length.",
        draw_rotary.decay,
        (8.2, 3.3),
    ),
    Picture(
        "bias_matrices",
        "Biases as matrices",
        "Press et al. 2022 (ALiBi); Raffel et al. 2020 (T5); Chi et al. 2022 (KERPLE); Chi et al. 2023 "
        "(Sandwich); Li et al. 2024 (FIRE)",
        "What is added to the logit of a query (row) and a key (column), for the first of four heads, at "
        "256 tokens with a training length of 64. Four depend on the distance alone and are constant "
        "along diagonals; FIRE measures distance against the query's own position. T5, KERPLE and FIRE "
        "are learned: these are before training.",
        draw_biases.new_matrices,
        (8.2, 2.4),
    ),
    Picture(
        "bias_curves",
        "Biases against distance, head by head",
        "Press et al. 2022; Raffel et al. 2020; Chi et al. 2022; Chi et al. 2023; Li et al. 2024",
        "The last query of 256 tokens. ALiBi falls in a straight line with a slope for each head, KERPLE "
        "and Sandwich like a logarithm. T5 has a number for each bucket of distances, and one for all from "
        "113 on. Before training, T5's numbers and FIRE's small network are random.",
        draw_biases.new_curves,
        (8.2, 2.9),
    ),
    Picture(
        "permutation",
        "The permutation test",
        "Vaswani et al. 2017; Kazemnejad et al. 2023",
        "One layer of attention in which every token sees all others, random weights. Without positions "
        "(nope), shuffling the tokens shuffles the outputs and nothing else: the layer sees a bag of "
        "tokens. Every position scheme breaks that, and so does a causal mask alone, which is how a "
        "decoder without positions can still tell order.",
        draw_biases.permutation_test,
        (8.2, 3.9),
    ),
)


def of_run(schemes: dict) -> tuple[Picture, ...]:
    """The pictures of a trained run's biases."""
    text = "The biases of this run as its newest checkpoint has them, at 256 tokens. "
    return (
        Picture(
            "run_bias_matrices",
            "This run's biases as matrices",
            "",
            text + "Rows are queries, columns keys; the first head.",
            lambda figure: draw_biases.matrices(figure, schemes),
            (max(2.4 * len(schemes), 3.4), 3.4),
        ),
        Picture(
            "run_bias_curves",
            "This run's biases against distance",
            "",
            text + "The last query, head by head.",
            lambda figure: draw_biases.curves(figure, schemes),
            (max(2.4 * len(schemes), 4.4), 3.0),
        ),
    )


def save(picture: Picture, folder: Path) -> None:
    """Writes NAME.png, the same bytes for the same versions of the libraries."""
    from matplotlib import rc_context
    from PIL import Image

    drawn = io.BytesIO()
    with rc_context(style.settings()):
        figure = style.blank(*picture.size)
        picture.draw(figure)
        figure.savefig(drawn, dpi=110, metadata={"Software": None})
    # A palette: a third of the size, and no difference that one sees.
    image = Image.open(drawn).convert("RGB")
    image = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(folder / f"{picture.name}.png", optimize=True)


def markdown() -> str:
    """docs/gallery.md: the pictures with their words, from the root of docs/."""
    parts = [
        "# The schemes in pictures\n\n"
        "Everything here is drawn from the schemes' own code by one command, which also writes\n"
        "`gallery.html`, a page with sliders for position, length, factor and base:\n\n"
        "    .venv/bin/python -m posenc.gallery --out=runs/gallery\n\n"
        "`--run=runs/t5` adds the learned biases of a trained run. Rotary pictures are for a head of\n"
        "128 channels, base 10,000 and a training length of 4,096 tokens, the sizes of Llama 2, unless\n"
        "they say otherwise. `docs/build.py` writes this file and its pictures.\n"
    ]
    for picture in PICTURES:
        parts.append(
            f"\n## {picture.title}\n\n![{picture.title}](gallery/{picture.name}.png)\n\n"
            f"{picture.text}\n\n*{picture.paper}*\n"
        )
    return "".join(parts)


def write_documents(docs: Path) -> None:
    """Writes gallery.md and the pictures it shows into the folder of documents."""
    (docs / "gallery").mkdir(exist_ok=True)
    for picture in PICTURES:
        save(picture, docs / "gallery")
    (docs / "gallery.md").write_text(markdown(), encoding="utf-8")
