"""Write every generated part of the documents: tables, figures and the numbers in prose come from records.

    python docs/build.py [--check]

In each document below it fills what stands between `<!-- NAME -->` and `<!-- /NAME -->`, and the
figures of the sentences that docs/claims.py lists; beside each
records.jsonl of docs/results it draws curves.svg and curves.png, or probes.svg and probes.png; it
writes docs/gallery.md and the pictures of docs/gallery. --check writes nothing, and fails where a
document, or a drawn svg, is not byte for byte what its records give.
"""

import functools
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import claims  # noqa: E402 (the roots are put on the path above)
import tables  # noqa: E402

from evaluation.plots import plot_curves  # noqa: E402
from evaluation.probe_plot import plot_probes  # noqa: E402
from evaluation.probes import is_probe  # noqa: E402
from evaluation.records import read_records, read_statistics  # noqa: E402
from posenc.gallery.pictures import write_documents  # noqa: E402

RESULTS = ROOT / "docs" / "results"


def parts() -> dict[str, dict[str, str]]:
    """document -> {name of a generated part: its text}."""
    published, demo, every = (
        RESULTS / name for name in ("published", "seven_schemes", "all_schemes")
    )
    return {
        "README.md": {"schemes": tables.schemes(), "results": tables.results(published)},
        "docs/results/README.md": {
            "published": tables.results(published),
            "differences": tables.differences(published),
            "contexts": tables.contexts(published),
            "demo": tables.results(demo),
            "all_schemes": tables.results(every),
        },
        "docs/probes.md": {
            "probes": tables.probes(RESULTS / "probes"),
            "depths": tables.depths(RESULTS / "probes", "passkey"),
        },
        "docs/diagnostics.md": {"example": tables.diagnostics(ROOT / "docs" / "diagnostics.jsonl")},
        "docs/long_evaluation.md": tables.long_evaluation(ROOT / "docs" / "long_evaluation.jsonl"),
        "docs/performance.md": tables.performance(ROOT / "docs" / "performance"),
        "docs/reliability.md": tables.reliability(ROOT / "docs" / "reliability"),
    }


def main() -> int:
    checking, wrong = "--check" in sys.argv, []
    contents, stated = parts(), claims.claims()
    for document in dict.fromkeys([*contents, *stated]):
        path = ROOT / document
        old = new = path.read_text(encoding="utf-8")
        for name, content in contents.get(document, {}).items():
            new = fill(document, new, name, content)
        for words, figures in stated.get(document, []):
            new = claims.state(document, new, words, figures)
        if checking:
            wrong += [document] if new != old else []
        else:
            path.write_text(new, encoding="utf-8")
    for records in sorted(RESULTS.glob("*/records.jsonl")):
        wrong += draw(records.parent, checking)
    if checking:
        print("\n".join(f"{name} differs: run docs/build.py" for name in wrong) or "up to date")
        return int(bool(wrong))
    write_documents(ROOT / "docs")
    return 0


def draw(folder: Path, checking: bool) -> list[str]:
    """Draw the curves of a folder of records, or name what would change."""
    records, name = read_records(folder), "curves.svg"
    plot = functools.partial(plot_curves, records, statistics=read_statistics(folder))
    if all(map(is_probe, records)):
        plot, name = functools.partial(plot_probes, records), "probes.svg"
    if not checking:
        plot(folder)
        return []
    with tempfile.TemporaryDirectory() as temporary:
        plot(temporary)
        drawn = (Path(temporary) / name).read_bytes()
    path = folder / name
    same = path.exists() and path.read_bytes() == drawn
    return [] if same else [str(path.relative_to(ROOT))]


def fill(document: str, text: str, name: str, content: str) -> str:
    """The text with the part between the markers of `name` replaced."""
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{document} has no part <!-- {name} --> … <!-- /{name} -->")
    return pattern.sub(lambda found: found[1] + content + found[2], text)


if __name__ == "__main__":
    sys.exit(main())
