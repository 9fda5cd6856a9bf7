"""Pictures of sinusoidal and rotary positions. Each function fills one figure."""

import numpy as np

import posenc
from posenc.gallery import rotary, style

BASE, FACTOR = 10000.0, 8.0
L = rotary.ROTARY.train_length
NAMES = {"longrope": "longrope (lists not searched)"}


def scaled(length: int = int(FACTOR) * L) -> dict:
    return rotary.family(rotary.ROTARY, BASE, FACTOR, length)


def line(axes, x, y, name: str, **look) -> None:
    look = {"label": NAMES.get(name, name), "color": style.COLOURS[name][0], **look}
    axes.plot(x, y, **look)


def sinusoid_table(figure) -> None:
    axes = figure.subplots()
    table = rotary.sinusoid_table(128, np.arange(100), BASE)
    look = {"cmap": style.colours(style.TURNING, "turning"), "vmin": -1, "vmax": 1}
    image = style.heat(axes, table, "", "channel of the embedding", "position (tokens)", **look)
    figure.colorbar(image, ax=axes, label="added to the embedding", pad=0.02, aspect=30)


def rotation(figure) -> None:
    scheme = posenc.create("rope", rotary.FEW, base=BASE)
    positions = np.arange(33)
    points = rotary.phasors(scheme, positions)
    for t, axes in enumerate(figure.subplots(1, 4)):
        axes.add_patch(circle())
        colour = style.PAIRS[t][0]
        shade = 0.25 + 0.75 * positions / positions[-1]
        spread = 0.62 + 0.38 * positions / positions[-1]  # a spiral, so that turns stay apart
        x, y = points[:, t].real * spread, points[:, t].imag * spread
        axes.plot(x, y, color=colour, lw=0.8, alpha=0.35)
        axes.scatter(x, y, s=14, color=colour, alpha=shade, lw=0)
        for p in (0, positions[-1]):
            arrow = {"arrowstyle": "-|>", "color": style.INK if p else style.QUIET, "lw": 1.3}
            axes.annotate("", (x[p], y[p]), (0, 0), arrowprops=arrow)
        theta = scheme.inverse_frequencies()[t]
        axes.set_title(f"pair {t}: {theta:g} rad/token", fontsize=9)
        axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
        axes.set_xlabel(f"channel {t}")
        axes.set_ylabel(f"channel {t + 4}", labelpad=1)
        axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        axes.tick_params(length=0, labelsize=7.5, colors=style.QUIET)
        for spine in axes.spines.values():
            spine.set_color(style.GRID)


def circle():
    from matplotlib.patches import Circle

    return Circle((0, 0), 1, fill=False, color="#BDBDBD", lw=0.9)


def inner_product(figure) -> None:
    distances = np.arange(97)
    left, right = figure.subplots(1, 2)
    q, k = rotary.random_pair(rotary.HEAD)
    for name, axes in (("rope", left), ("sinusoidal", right)):
        scheme = posenc.create(name, rotary.HEAD, base=BASE)
        for at, look in ((0, "solid"), (40, (0, (4, 2))), (500, (0, (1, 1.6)))):
            places = distances + at, np.full(len(distances), at)
            products = rotary.inner_products(scheme, q, k, *places)
            line(axes, distances, products, name, ls=look, label=f"key at position {at}")
        style.tidy(axes, name, "distance from key to query (tokens)", "q·k")
        axes.legend(loc="upper right")
    left.set_title("rope: three curves that coincide")
    right.set_title("sinusoidal: one curve for each place")


def wavelengths(figure) -> None:
    axes = figure.subplots()
    for base, shade in ((1e3, 0.35), (1e4, 0.55), (1e5, 0.78), (5e5, 1.0)):
        scheme = posenc.create("rope", rotary.ROTARY, base=base)
        turns = rotary.wavelengths(scheme)
        axes.plot(turns, color=style.COLOURS["rope"][0], alpha=shade)
        axes.text(len(turns) - 0.5, turns[-1], f"base {base:,.0f}", va="center", fontsize=8.5)
    axes.set_yscale("log")
    style.ruler(axes.yaxis, [10**k for k in range(1, 7)])
    axes.set_xlim(-1, 71)
    axes.axhline(L, color=style.QUIET, ls=(0, (4, 3)), lw=1)
    axes.text(0, L * 1.15, f"training length, {L:,} tokens", color=style.QUIET, fontsize=8.5)
    style.tidy(axes, "", "pair of channels, fastest first", "wavelength (tokens a turn)")


def scalings(figure) -> None:
    axes = figure.subplots()
    plain = scaled()["rope"]
    for name, scheme in scaled().items():
        divided = plain.inverse_frequencies() / scheme.inverse_frequencies()
        line(axes, np.arange(len(divided)), divided, name)
    axes.set_yscale("log", base=2)
    style.ruler(axes.yaxis, (1, 2, 4, 8), ("1 (kept)", "2", "4", "8"))
    critical = int(np.sum(rotary.wavelengths(plain) <= L))
    axes.axvline(critical - 0.5, color=style.QUIET, ls=(0, (4, 3)), lw=1)
    axes.text(critical, 1.05, "no full turn\nin training", color=style.QUIET, fontsize=8.5)
    style.tidy(axes, "", "pair of channels, fastest first", "frequency divided by")
    axes.legend(loc="upper left", bbox_to_anchor=(0.005, 0.9))


def unseen_angles(figure) -> None:
    from matplotlib.patches import Patch

    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    n = int(FACTOR) * L
    states = np.array([rotary.seen_angles(scheme, n) for scheme in scaled(n).values()])
    shades = ("#E3E3E3", "#8FC1E3", "#C2370F")
    look = {"cmap": style.colours(shades, "seen"), "vmin": 0, "vmax": 2}
    title = f"At {n:,} tokens, {FACTOR:g} times the training length"
    style.heat(left, states, title, "pair of channels, fastest first", "", **look)
    left.set_yticks(range(len(rotary.FAMILY)), rotary.FAMILY)
    left.hlines(np.arange(0.5, len(states) - 1), -0.5, states.shape[1] - 0.5, color="white", lw=3)
    words = ("full turn seen", "arc seen", "outside the arc seen")
    marks = [Patch(color=shade, label=word) for shade, word in zip(shades, words, strict=True)]
    left.legend(handles=marks, loc="upper left", bbox_to_anchor=(-0.02, -0.17), ncols=3)
    lengths = np.unique(np.round(L * 2 ** np.linspace(0, 6, 97)).astype(int))
    alike: dict[tuple, list[str]] = {}  # schemes whose curves are the same share one line
    for name in rotary.FAMILY:
        shares = [100 * rotary.unseen_share(scaled(int(n))[name], int(n)) for n in lengths]
        alike.setdefault(tuple(shares), []).append(name)
    for shares, names in alike.items():
        line(right, lengths / L, shares, names[0], label=", ".join(names))
    right.set_xscale("log", base=2)
    right.set_ylim(-1, 40)
    ticks = [2**k for k in range(7)]
    style.ruler(right.xaxis, ticks, [f"{tick}×" for tick in ticks])
    style.tidy(right, "", "length (training lengths)", "pairs outside (%)")
    right.set_title(f"Share of pairs, factor {FACTOR:g}")
    right.legend(loc="upper left", fontsize=8)


def rotation_matrix(figure) -> None:
    for axes, pairing in zip(figure.subplots(1, 2), ("interleaved", "half"), strict=True):
        scheme = posenc.create("rope", rotary.FEW, base=BASE, pairing=pairing)
        matrix = rotary.rotation_matrices(scheme, np.array([7]))[0]
        look = {"cmap": style.colours(style.TURNING, "turning"), "vmin": -1.4, "vmax": 1.4}
        style.heat(axes, matrix, f"pairing {pairing}", "channel before", "channel after", **look)
        axes.set(aspect="equal", xticks=range(8), yticks=range(8))
        for row, column in np.argwhere(np.abs(matrix) > 0):
            word = f"{matrix[row, column]:.2f}"
            axes.text(column, row, word, ha="center", va="center", fontsize=7.5)


def decay(figure) -> None:
    left, right = figure.subplots(1, 2)
    distances = np.arange(257)
    rope = posenc.create("rope", rotary.ROTARY, base=BASE)
    line(left, distances, rotary.product_bound(rope, distances), "rope")
    left.set_ylim(0)
    style.tidy(left, "The bound of the paper", "distance (tokens)", "mean of |partial sums|")
    far = rotary.far_distances(100, 24)
    schemes = {"xpos": posenc.create("xpos", rotary.ROTARY, base=BASE), **scaled()}
    for name in ("rope", "pi", "yarn", "xpos"):
        line(right, far.mean(axis=1), rotary.smoothed_product(schemes[name], far), name)
    right.set_xscale("log")
    style.ruler(right.xaxis, [10**k for k in range(5)])
    right.axvline(L, color=style.QUIET, ls=(0, (4, 3)), lw=1)
    style.tidy(right, "q·k for q = k, on average", "distance (tokens)", "q·k for |q| = |k| = 1")
    right.legend(loc="upper right")
