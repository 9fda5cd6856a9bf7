"""The schemes in pictures: a PNG for each, and gallery.html, a page with sliders.

python -m posenc.gallery --out=DIR [--run=WORKDIR]
"""

import sys
from pathlib import Path

from absl import flags


def main(words: list[str]) -> int:
    """Draw what the command line asks for; a mistake in it is one line and status 2."""
    # Flags of its own: other commands define some of these names, too.
    given = flags.FlagValues()
    define = {"flag_values": given}
    flags.DEFINE_string("out", None, "folder for the pictures and gallery.html", **define)
    flags.DEFINE_string(
        "run", None, "workdir of a run whose learned biases are drawn too", **define
    )
    flags.DEFINE_boolean("help", False, "show this", **define)
    try:
        rest = given(words)
        if given.help:
            print(__doc__)
            for name in ("out", "run"):
                print(f"  --{name}: {given[name].help}")
            return 0
        if len(rest) > 1:
            raise ValueError(f"unexpected argument {rest[1]!r}: options are written --name=value")
        if not given.out:
            raise ValueError("--out=… is missing; --help shows the usage")
        if given.run == "":
            raise ValueError("--run= is empty; name a run's workdir, as in --run=runs/t5")
        draw(Path(given.out).expanduser(), given.run)
    except (ValueError, OSError, flags.Error) as error:
        print(f"posenc.gallery: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def draw(out: Path, run: str | None) -> None:
    """Write everything into `out`; ValueError or OSError says in one line what is wrong."""
    from posenc.gallery import biases, page, pictures

    trained = biases.run_schemes(run) if run else {}
    out.mkdir(parents=True, exist_ok=True)
    chosen = (*pictures.PICTURES, *(pictures.of_run(trained) if trained else ()))
    for number, picture in enumerate(chosen, 1):
        say(f"{number} of {len(chosen)}: {picture.name}.png")
        pictures.save(picture, out)
    say("gallery.html: every state of its sliders, the longest part")
    schemes = {**biases.new_schemes(), **trained}
    (out / "gallery.html").write_text(page.build(schemes), encoding="utf-8")
    print(f"{len(chosen)} pictures and {out / 'gallery.html'}")


def say(line: str) -> None:
    """A line of progress, seen at once wherever it goes."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
