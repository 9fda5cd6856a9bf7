"""How a scheme looks in the interactive plots: as in the static picture, and readable on dark."""

from evaluation.styles import DASHES, appearances

# matplotlib marker -> plotly symbol
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "d": "diamond-tall",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "P": "cross",
    "X": "x",
    "p": "pentagon",
    "h": "hexagon",
}
DARK_PAGE = "#15171A"
CONTRAST = 3.0  # with the dark page, what WCAG asks of graphics; more, and blue lines become alike


def looks(schemes: list[str]) -> list[dict]:
    """For each curve of one figure: colour, dark (colour on dark), symbol, hollow, dash."""
    names = {dashes: name for name, dashes in DASHES.items()}
    found = []
    for line, dots in appearances(schemes):
        colour = line["color"]
        found.append(
            {
                "colour": colour,
                "dark": on_dark(colour),
                "symbol": SYMBOLS[dots["marker"]],
                "hollow": dots["mfc"] == "white",
                "dash": {"dashed": "dash", "dotted": "dot"}.get(
                    names[line["dashes"]], names[line["dashes"]]
                ),
            }
        )
    return found


def on_dark(colour: str) -> str:
    """The colour mixed with as little white as makes it readable on a dark page; ink turns light."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    if max(channels) < 0x30:  # the darkest ink stays the strongest contrast there is
        return "#F2F2F2"
    for percent in range(101):
        mixed = [round(c + (255 - c) * percent / 100) for c in channels]
        if _contrast(mixed) >= CONTRAST:
            break
    return "#" + "".join(f"{c:02X}" for c in mixed)


def _contrast(channels: list[int]) -> float:
    page = [int(DARK_PAGE[i : i + 2], 16) for i in (1, 3, 5)]
    return (_luminance(channels) + 0.05) / (_luminance(page) + 0.05)


def _luminance(channels: list[int]) -> float:
    """Relative luminance of sRGB (WCAG 2)."""
    linear = [c / 255 for c in channels]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in linear]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
