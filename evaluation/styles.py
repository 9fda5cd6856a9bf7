"""The colour, marker and dash of each scheme, the same in every picture."""

DASHES = {"solid": (), "dashed": (5, 1.6), "dashdot": (5, 1.5, 1.2, 1.5), "dotted": (1.4, 1.4)}
# scheme -> colour, marker, dash. The colours of the common schemes keep apart for colour-blind
# readers; where a colour comes twice, for kin of one idea, marker and dash differ.
SCHEME_STYLE = {
    "nope": ("#767676", "o", "solid"),
    "sinusoidal": ("#C264A0", "v", "solid"),
    "learned": ("#3FA0DC", "s", "solid"),
    "rope": ("#00559E", "o", "solid"),
    "pi": ("#D1490C", "^", "solid"),
    "ntk": ("#DE9A00", "D", "solid"),
    "dynamic_ntk": ("#DE9A00", "d", "dashdot"),
    "dynamic_pi": ("#D1490C", ">", "dashdot"),
    "ntk_by_parts": ("#8F6400", "P", "solid"),
    "yarn": ("#1A1A1A", "p", "solid"),
    "dynamic_yarn": ("#1A1A1A", "h", "dashdot"),
    "llama3": ("#7B4FB5", "s", "solid"),
    "longrope": ("#6B8E23", "^", "solid"),
    "p_rope": ("#00559E", "p", "dashed"),
    "xpos": ("#332288", "X", "solid"),
    "log_n": ("#767676", "D", "dashed"),
    "alibi": ("#008A66", "s", "solid"),
    "t5": ("#4F7F3F", "v", "solid"),
    "kerple": ("#2BA39B", "D", "solid"),
    "sandwich": ("#999933", "<", "solid"),
    "fire": ("#882255", "o", "solid"),
    "shaw": ("#AA4499", "P", "solid"),
    "transformer_xl": ("#6B2F10", "s", "solid"),
    "xlnet": ("#5F86B3", "^", "solid"),
    "deberta": ("#B8860B", "v", "solid"),
    "cope": ("#CC5566", "X", "solid"),
}
UNKNOWN = ("#666666", "o", "solid")


def style(scheme: str) -> tuple[str, str, str]:
    """(colour, marker, dash) of a scheme string; options and compositions differ in the dash."""
    first = scheme.split("+")[0].split(":")[0]
    colour, marker, dash = SCHEME_STYLE.get(first, UNKNOWN)
    if "+" in scheme:
        return colour, marker, "dotted"
    return colour, marker, "dashed" if ":" in scheme else dash


def appearances(schemes: list[str]) -> list[tuple[dict, dict]]:
    """(line, marker) settings of curves in one picture, each with its scheme's colour and shape.

    Markers are hollow where options or another part change the scheme. A curve that would look
    like an earlier one takes another dash or filling.
    """
    taken, found = set(), []
    for scheme in schemes:
        colour, marker, dash = style(scheme)
        first = (dash, "+" in scheme or ":" in scheme)
        others = [(other, hollow) for hollow in (True, False) for other in DASHES]
        free = [look for look in (first, *others) if (colour, marker, *look) not in taken]
        dash, hollow = (free or [first])[0]
        taken.add((colour, marker, dash, hollow))
        inside, edge = ("white", colour) if hollow else (colour, "white")
        face = {"mfc": inside, "mec": edge, "mew": 1.3 if hollow else 0.8}
        dots = {"color": colour, "ls": "", "marker": marker, "ms": 6, **face}
        found.append(({"color": colour, "lw": 1.9, "dashes": DASHES[dash]}, dots))
    return found
