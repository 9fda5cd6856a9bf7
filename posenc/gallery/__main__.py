"""`python -m posenc.gallery --out=DIR`: the pictures as PNG files, and gallery.html with its sliders."""

import sys
from pathlib import Path

from absl import app, flags

OUT = flags.DEFINE_string("out", None, "folder for the pictures and gallery.html")
RUN = flags.DEFINE_string("run", None, "workdir of a run whose learned biases are drawn too")


def main(words: list[str]) -> int:
    """Draw what the command line asks for; a mistake in it is one line and status 2."""
    app.define_help_flags()
    try:
        rest = flags.FLAGS(words)
        if len(rest) > 1:
            raise ValueError(f"unexpected argument {rest[1]!r}: options are written --name=value")
        if not OUT.value:
            raise ValueError("--out=… is missing; --help shows the usage")
        if RUN.value == "":
            raise ValueError("--run= is empty; name a run's workdir, as in --run=runs/t5")
        draw(Path(OUT.value).expanduser(), RUN.value)
    except (ValueError, OSError, flags.Error) as error:
        print(f"posenc.gallery: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def draw(out: Path, run: str | None) -> None:
    from posenc.gallery import biases, page, pictures

    trained = biases.run_schemes(run) if run else {}
    out.mkdir(parents=True, exist_ok=True)
    extra = pictures.of_run(trained) if trained else ()
    for picture in (*pictures.PICTURES, *extra):
        pictures.save(picture, out)
    schemes = {**biases.new_schemes(), **trained}
    (out / "gallery.html").write_text(page.build(schemes), encoding="utf-8")
    print(f"{len(pictures.PICTURES) + len(extra)} pictures and {out / 'gallery.html'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
