"""How the pictures look: colours, type and axes, the same everywhere."""

import numpy as np

INK, QUIET, GRID = "#1C1C1C", "#5F5F5F", "#E4E4E4"
# scheme -> its colour on white and on black; on white that of the pictures of curves.
COLOURS = {
    "rope": ("#00559E", "#62AEF5"),
    "pi": ("#D1490C", "#FF8A57"),
    "ntk": ("#DE9A00", "#F5BE45"),
    "yarn": ("#1A1A1A", "#F2F2F2"),
    "llama3": ("#7B4FB5", "#BC98F2"),
    "longrope": ("#6B8E23", "#A9CE5B"),
    "xpos": ("#332288", "#9D90EE"),
    "sinusoidal": ("#C264A0", "#E58CC6"),
}
# Four pairs of channels, fastest first.
PAIRS = (
    ("#00559E", "#62AEF5"),
    ("#008A66", "#35C79B"),
    ("#DE9A00", "#F5BE45"),
    ("#C264A0", "#E58CC6"),
)
TURNING = ("#2166AC", "#FFFFFF", "#B2182B")  # −1, 0, 1
DEEP = ("#08306B", "#2373B3", "#6AAED6", "#CFE3F1", "#FFFFFF")  # lowest to highest
UNSEEN = "#EDE7DC"  # behind a matrix: where no key is


def blank(width: float, height: float):
    """A figure on white of this size in inches, ready to be saved without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def settings() -> dict:
    return {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "text.parse_math": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.edgecolor": "#9A9A9A",
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
    }


def colours(names: tuple[str, ...], name: str):
    """A colour map through these colours."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, names)


def tidy(axes, title: str, x: str, y: str) -> None:
    """Title, names of the axes, a quiet grid and no box."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)


def ruler(axis, ticks, words=None) -> None:
    """These ticks and no others, on a log scale too; written as plain numbers unless in `words`."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FixedFormatter(words or [f"{tick:,.10g}" for tick in ticks]))


def heat(axes, matrix: np.ndarray, title: str, x: str, y: str, **look):
    """A matrix as a picture, first row on top."""
    image = axes.imshow(matrix, interpolation="nearest", aspect="auto", **look)
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.tick_params(length=2)
    return image
