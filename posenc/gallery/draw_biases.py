"""Pictures of biases, and of the permutation test. Each function fills one figure."""

from posenc.gallery import biases, permutation, style

LENGTH = 256  # tokens: four times the training length of the small sizes


def matrices(figure, schemes: dict) -> None:
    """The first head's bias of each scheme as a matrix."""
    grid = figure.subplots(1, len(schemes), squeeze=False)[0]
    for axes, (name, scheme) in zip(grid, schemes.items(), strict=True):
        matrix = biases.bias_matrix(scheme, LENGTH, 128)[0]
        look = {"cmap": style.colours(style.DEEP, "deep"), "extent": (0, LENGTH, LENGTH, 0)}
        y = "query position (tokens)" if axes is grid[0] else ""
        image = style.heat(axes, matrix, name, "key position", y, **look)
        axes.set_facecolor(style.UNSEEN)
        axes.set(aspect="equal", xticks=(0, 128, 256), yticks=(0, 128, 256))
        bar = figure.colorbar(image, ax=axes, location="bottom", pad=0.03, aspect=14)
        bar.ax.tick_params(labelsize=7.5, length=2)
        bar.ax.locator_params(nbins=4)
        bar.set_label("logits", fontsize=8)


def curves(figure, schemes: dict) -> None:
    """Every head's bias of each scheme against distance."""
    grid = figure.subplots(1, len(schemes), squeeze=False)[0]
    shades = ("#08306B", "#2373B3", "#6AAED6", "#A9CCE3")
    for axes, (name, scheme) in zip(grid, schemes.items(), strict=True):
        for h, curve in enumerate(biases.bias_curve(scheme, LENGTH - 1)):
            axes.plot(curve, color=shades[h % len(shades)], lw=1.6, label=f"head {h + 1}")
        y = "bias (logits)" if axes is grid[0] else ""
        style.tidy(axes, name, "distance", y)
        axes.set_xticks((0, 128, 256))
        axes.tick_params(labelsize=8)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=8)


def new_matrices(figure) -> None:
    matrices(figure, biases.new_schemes())


def new_curves(figure) -> None:
    curves(figure, biases.new_schemes())


def permutation_test(figure) -> None:
    left, right = figure.subfigures(1, 2, width_ratios=(1.1, 1))
    examples(left)
    bars(right.subplots())


def examples(figure) -> None:
    look = {"cmap": style.colours(style.TURNING, "turning"), "vmin": -2, "vmax": 2}
    for row, name in zip(figure.subplots(2, 3), ("nope", "rope"), strict=True):
        plain, back = permutation.shuffled_outputs(name)
        parts = (plain, "outputs"), (back, "after shuffling"), (back - plain, "difference")
        for axes, (matrix, title) in zip(row, parts, strict=True):
            y = f"{name}: token" if title == "outputs" else ""
            style.heat(axes, matrix, title, "channel", y, **look)
            axes.title.set_fontsize(8.5)
            axes.set(xticks=(), yticks=())


def bars(axes) -> None:
    found = {name: permutation.change(name) for name in permutation.DRAWN}
    floor = 1e-5  # below it stands rounding, which is not drawn
    for place, change in enumerate(found.values()):
        colour = "#00559E" if change > floor else "#9A9A9A"
        axes.barh(place, max(change, floor), color=colour, height=0.7)
        if change <= floor:
            axes.text(floor * 1.3, place, "nothing but rounding", va="center", color=style.QUIET)
    axes.set_yticks(range(len(found)), found)
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(floor, 2))
    style.ruler(axes.xaxis, (1e-4, 1e-3, 1e-2, 0.1, 1), ("0.01 %", "0.1 %", "1 %", "10 %", "100 %"))
    words = "largest change, of the largest output"
    style.tidy(axes, "What shuffling the tokens changes", words, "")
