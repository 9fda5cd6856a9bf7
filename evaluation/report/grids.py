"""Tables of figures whose cells are shaded by their value."""

from dataclasses import dataclass

from evaluation.report.markup import Markup, breakable, join, tag


@dataclass(frozen=True)
class Cell:
    """One cell: what it says, small print below it, a title to hover, and its shade.

    `shade` is from 0 (none) to 1, or from -1 to 1 where two directions have a colour each; `kind`
    is a class of the style sheet.
    """

    text: str | Markup
    small: str = ""
    title: str = ""
    shade: float | None = None
    kind: str = ""


NOTHING = Cell("–", kind="quiet")


def grid(
    caption: str,
    corner: str | Markup,
    columns: list[str],
    rows: list[tuple[str | Markup, list[Cell]]],
) -> Markup:
    """A table of figures; its caption is for all."""
    heads = join(*(tag("th", breakable(column), scope="col") for column in columns))
    body = [
        tag("tr", tag("th", name, scope="row"), *(_cell(cell) for cell in cells))
        for name, cells in rows
    ]
    table = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", tag("th", corner, scope="col"), heads)),
        tag("tbody", *body),
    )
    return scrolling(table, caption)


def scrolling(table: Markup, label: str) -> Markup:
    """A table that scrolls by itself where it is wider than the page, and then says so."""
    cue = tag("p", "Wider than the page: scroll sideways →", class_="cue", aria_hidden="true")
    box = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)
    return tag("div", cue, box, class_="frame")


def named(label: str, small: str, title: str | None = None) -> Markup:
    """The head of a row: a name with small print."""
    return join(breakable(label), tag("small", small, title=title) if small else None)


def scale(low: str, high: str, kind: str = "") -> Markup:
    """The key to the shades of a table."""
    bar = tag("span", class_=f"bar {kind}".strip(), aria_hidden="true")
    return tag("p", tag("span", low), bar, tag("span", high), class_="key")


def shades(values: list[float], least: float, most: float) -> tuple[float, float]:
    """The figures at which a table's shading begins and ends: from `least` to `most` apart."""
    if not values:
        return 0.0, 1.0
    return min(values), min(values) + min(max(max(values) - min(values), least), most)


def shade(value: float, low: float, high: float) -> float:
    """From 0 at `low` to 1 at `high` and beyond."""
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def _cell(cell: Cell) -> Markup:
    kind, style = cell.kind, None
    if cell.shade is not None and abs(cell.shade) >= 0.005:
        kind = f"{kind} {'below' if cell.shade < 0 else 'above'}".strip()
        style = f"--s:{abs(cell.shade):.2f}"
    small = tag("small", cell.small) if cell.small else None
    return tag("td", cell.text, small, class_=kind or None, style=style, title=cell.title or None)
