"""The numbers that the gallery draws: from the schemes, and right by hand."""

import ast
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc
from evaluation.styles import SCHEME_STYLE
from posenc.gallery import biases, grids, page, permutation, pictures, rotary, style
from posenc.gallery.__main__ import main

ROOT = Path(__file__).parent.parent
BASE = grids.SLIDERS["base"]


@pytest.mark.parametrize("pairing", grids.PAIRINGS)
def test_ropes_matrix_is_orthogonal_and_made_of_blocks(pairing):
    scheme = posenc.create("rope", rotary.FEW, pairing=pairing)
    matrices = rotary.rotation_matrices(scheme, np.array([0, 7, 40]))
    expected = np.zeros((8, 8))
    for t in range(4):
        a, b = (2 * t, 2 * t + 1) if pairing == "interleaved" else (t, t + 4)
        angle = 7 * 10000 ** (-2 * t / 8)
        expected[a, a] = expected[b, b] = math.cos(angle)
        expected[a, b], expected[b, a] = -math.sin(angle), math.sin(angle)
    np.testing.assert_allclose(matrices[0], np.eye(8), atol=1e-7)
    np.testing.assert_allclose(matrices[1], expected, atol=1e-6)
    for matrix in matrices:
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(8), atol=1e-6)


def test_wavelengths():
    scheme = posenc.create("rope", rotary.ROTARY, base=500.0)
    by_hand = [2 * math.pi * 500.0 ** (2 * i / 128) for i in range(64)]
    np.testing.assert_allclose(rotary.wavelengths(scheme), by_hand, rtol=1e-12)


def test_a_query_turns_by_its_frequency():
    points = rotary.phasors(posenc.create("rope", rotary.FEW), np.array([0, 3, 50]))
    by_hand = [[np.exp(1j * p * 10.0**-t) for t in range(4)] for p in (0, 3, 50)]
    np.testing.assert_allclose(points, by_hand, atol=1e-6)


def test_the_inner_product_depends_on_the_distance_alone_under_rope_only():
    q, k = rotary.random_pair(rotary.HEAD)
    distances = np.arange(20)

    def curve(name, at):
        scheme = posenc.create(name, rotary.HEAD)
        return rotary.inner_products(scheme, q, k, distances + at, np.full(20, at))

    np.testing.assert_allclose(curve("rope", 40), curve("rope", 0), atol=1e-4)
    assert np.abs(curve("sinusoidal", 40) - curve("sinusoidal", 0)).max() > 1


def test_unseen_angles_by_hand():
    """Base 10000, 8 channels: frequencies 1, 0.1, 0.01, 0.001; 64 tokens turn the first two fully
    (64 and 6.4 radians, a circle being 6.28) and the others by 0.64 and 0.064 radians.
    """
    C, A, X = rotary.CIRCLE, rotary.ARC, rotary.OUTSIDE
    made = rotary.family(rotary.FEW, 10000.0, 8.0, 512)
    found = {name: rotary.seen_angles(scheme, 512).tolist() for name, scheme in made.items()}
    # NTK divides the pairs by 8^(t/3): 1, 2, 4 and 8, so that 512 tokens turn pair 2 by 1.28.
    assert found["rope"] == [C, C, X, X]
    assert found["pi"] == [C, C, A, A]
    assert found["ntk"] == [C, C, X, A]
    assert found["longrope"] == [C, C, A, A]
    assert rotary.seen_angles(made["ntk"], 256).tolist() == [C, C, A, A]
    assert rotary.seen_angles(made["pi"], 513).tolist() == [C, C, X, X]
    assert rotary.unseen_share(made["rope"], 512) == 0.5
    assert rotary.unseen_share(made["ntk"], 512) == 0.25
    assert rotary.unseen_share(made["rope"], 64) == 0


def test_the_list_drawn_for_longrope():
    """By equal ratios to the factor at the first pair without a full turn, which is the third."""
    lists = rotary.divisors(rotary.FEW, 10000.0, 9.0)
    np.testing.assert_allclose(lists["long_factor"], (1, 3, 9, 9))
    assert lists["short_factor"] == (1, 1, 1, 1)


def test_decay_by_hand():
    distances = np.array([0, 1, 5])
    scheme = posenc.create("rope", rotary.FEW)
    thetas = (1, 0.1, 0.01, 0.001)
    average = [sum(math.cos(r * theta) for theta in thetas) / 4 for r in (0, 1, 5)]
    np.testing.assert_allclose(rotary.average_product(scheme, distances), average, atol=1e-6)
    bound = []
    for r in (0, 1, 5):
        total, sizes = 0, []
        for theta in thetas:
            total += complex(math.cos(r * theta), math.sin(r * theta))
            sizes.append(abs(total))
        bound.append(sum(sizes) / 4)
    np.testing.assert_allclose(rotary.product_bound(scheme, distances), bound, atol=1e-6)


def test_bias_matrices_are_the_schemes_own():
    for name, scheme in biases.new_schemes().items():
        matrix = biases.bias_matrix(scheme, 128, 64)
        assert np.isnan(matrix[:, 3, 4]).all() and not np.isnan(matrix[:, 4, 3]).any(), name
        curve = biases.bias_curve(scheme, 126)
        np.testing.assert_allclose(matrix[:, 63], curve[:, 126::-2], atol=2e-5, err_msg=name)
    alibi = biases.bias_matrix(posenc.create("alibi", biases.SMALL), 128, 64)
    np.testing.assert_allclose(alibi[:, 10, 4], [-12 / 4, -12 / 16, -12 / 64, -12 / 256])


def test_shuffling_changes_nothing_without_positions_and_something_with_each_scheme():
    """Of all that are drawn, those that are quick to make; test_gallery_page.py has all."""
    assert permutation.change("nope") < 1e-5
    for name in (permutation.CAUSAL, "sinusoidal", "rope", "alibi", "kerple", "window"):
        assert permutation.change(name) > 1e-3, name


def read(arrays):
    """Numbers as the page reads them."""
    return {name: grids.unpack(grids.pack(array)) for name, array in arrays.items()}


def test_the_sliders_show_what_the_schemes_compute():
    numbers = read(grids.turning())
    b, p = 1, 37  # base 1000, position 37
    scheme = posenc.create("rope", rotary.FEW, base=BASE[b])
    few = scheme.inverse_frequencies()
    turned = np.stack([np.cos(p * few), np.sin(p * few)], axis=-1)
    np.testing.assert_allclose(numbers["rotation"][b, p], turned, atol=1e-4)
    table = [
        f(p * BASE[b] ** (-t / 32)) for t in range(32) for f in (math.sin, math.cos)
    ]  # 64 channels
    np.testing.assert_allclose(numbers["sinusoid"][b, p], table, atol=1e-4)
    matrix = rotary.rotation_matrices(scheme, np.array([p]))[0]
    np.testing.assert_allclose(numbers["matrix"][1, b, p], matrix, atol=1e-4)
    q, k = rotary.random_pair(rotary.HEAD)
    for which, name in enumerate(("rope", "sinusoidal")):
        head = posenc.create(name, rotary.HEAD, base=BASE[b])
        product = rotary.inner_products(head, q, k, np.array([p + 12]), np.array([p]))
        np.testing.assert_allclose(numbers["product"][which, b, p, 12], product[0], atol=2e-3)


def test_the_sliders_bend_the_frequencies_as_the_schemes_do(monkeypatch):
    few = {"base": (100, 100_000), "factor": (1, 4), "length": (1, 16)}
    monkeypatch.setattr(grids, "SLIDERS", {**grids.SLIDERS, **few})
    numbers = read(grids.bent())
    L = rotary.ROTARY.train_length
    for i, name in enumerate(rotary.FAMILY[:5]):  # longrope's list is tested above
        options = {} if name == "rope" else {"factor": 4}
        scheme = posenc.create(name, rotary.ROTARY, base=100_000, **options)
        theta = scheme.inverse_frequencies()
        shown = 10 ** numbers["wavelength"][1, 1, i]
        np.testing.assert_allclose(shown, 2 * np.pi / theta, rtol=1e-3)
        seen = numbers["seen"][1, 1, 1, i]
        plain = 100_000.0 ** (-np.arange(64) / 64)
        leaves = (L * plain < 2 * np.pi) & (16 * L * theta > L * plain)
        np.testing.assert_array_equal(seen == rotary.OUTSIDE, leaves)
        first = rotary.far_distances(60, 12)[0]
        near = np.mean([np.cos(r * theta).mean() for r in first]) * scheme.attention_factor**2
        assert numbers["decay"][1, 1, i, 0] == pytest.approx(near, abs=1e-3)


def test_packing_keeps_gaps_and_nearly_every_digit():
    array = np.array([[0.0, -3.3], [np.nan, 2.51234]])
    read = grids.unpack(grids.pack(array))
    np.testing.assert_allclose(read, array, atol=3.3 / 65000)
    assert read[0, 0] == 0
    whole = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(grids.unpack(grids.pack(whole)), whole)


def test_colours_are_those_of_the_curves():
    for name, (colour, _) in style.COLOURS.items():
        assert colour == SCHEME_STYLE[name][0], name


def test_the_document_is_up_to_date_and_its_pictures_are_small():
    docs = ROOT / "docs"
    assert (docs / "gallery.md").read_text(encoding="utf-8") == pictures.markdown()
    shown = set(re.findall(r"\]\(gallery/(\w+\.png)\)", pictures.markdown()))
    assert shown == {path.name for path in (docs / "gallery").iterdir()}
    assert all((docs / "gallery" / name).stat().st_size < 60_000 for name in shown)


def test_a_picture_is_the_same_bytes_twice(tmp_path):
    picture = next(p for p in pictures.PICTURES if p.name == "wavelengths")
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pictures.save(picture, tmp_path / name)
        contents.append((tmp_path / name / "wavelengths.png").read_bytes())
    assert contents[0] == contents[1]
    assert b"Matplotlib" not in contents[0] and b"tEXt" not in contents[0]


def test_names_cannot_break_out_of_the_page():
    text = page.json_text({"</script><b>": 1})
    assert "<" not in text
    assert "<b>" not in page.control("s", "scheme", {"scheme": ("<b>",)}, 1)


@pytest.mark.parametrize(
    "words, says",
    [
        ((), "--out"),
        (("--out=x", "--rum=y"), "rum"),
        (("--out=x", "y"), "unexpected argument 'y'"),
        (("--out=/dev/null/x",), "/dev/null"),
        (("--out=x", "--run=docs"), "there is no config.json"),
        (("--out=x", "--run="), "--run= is empty"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(words, says, capsys):
    assert main(["gallery", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("posenc.gallery: ") and error.count("\n") == 1 and says in error


def test_help_shows_the_flags(capsys):
    assert main(["gallery", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "python -m posenc.gallery --out=DIR" in shown and "--run:" in shown


def test_the_command_says_what_it_is_doing(tmp_path, monkeypatch, capsys):
    """A line before each picture and before the page, not half a minute of silence."""
    seen = []
    monkeypatch.setattr(pictures, "save", lambda picture, out: seen.append(capsys.readouterr().out))
    monkeypatch.setattr(page, "build", lambda schemes: seen.append(capsys.readouterr().out) or "")
    assert main(["gallery", f"--out={tmp_path}"]) == 0
    names = [picture.name for picture in pictures.PICTURES]
    lines = [f"{k} of {len(names)}: {name}.png\n" for k, name in enumerate(names, 1)]
    assert seen == [*lines, "gallery.html: every state of its sliders, the longest part\n"]
    assert capsys.readouterr().out == f"{len(names)} pictures and {tmp_path / 'gallery.html'}\n"


@pytest.mark.slow
def test_the_command_draws_everything_and_the_biases_of_a_run(tmp_path):
    run = tmp_path / "run"
    train = ["train.py", "--config=configs/smoke.py", f"--workdir={run}"]
    train += ["--config.position=t5", "--config.train.steps=2", "--config.train.warmup_steps=0"]
    train += ["--config.data.source=synthetic:copy", f"--config.data.cache_dir={tmp_path}"]
    done = subprocess.run([sys.executable, *train], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = []
    for out in (tmp_path / "a", tmp_path / "b"):
        draw = [sys.executable, "-m", "posenc.gallery", f"--out={out}", f"--run={run}"]
        done = subprocess.run(draw, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        names = {f"{picture.name}.png" for picture in pictures.PICTURES}
        names |= {"run_bias_matrices.png", "run_bias_curves.png", "gallery.html"}
        assert {path.name for path in out.iterdir()} == names
        made.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert made[0] == made[1]
    assert len(made[0]["gallery.html"]) < 8_000_000
    assert b"<option>t5, trained</option>" in made[0]["gallery.html"]


@pytest.mark.slow
def test_a_runs_biases_are_those_of_its_parameters(monkeypatch):
    """Without training: a run whose parameters are known."""
    import types

    import models
    from configs import smoke
    from training import checkpoint
    from training.config import RunConfig

    def model_config(position):
        config = smoke.get_config()
        config.position = position
        return RunConfig.from_config(config).model_config(vocab_size=8)

    config = model_config("t5")
    graph, params = models.split(models.build(config, 0))
    params = {**params, "posenc.t5.table": params["posenc.t5.table"] * 0 + 2.5}
    run = types.SimpleNamespace(
        model_config=config, config=types.SimpleNamespace(seed=0), params=params
    )
    monkeypatch.setattr(checkpoint, "load_run", lambda workdir: run)
    schemes = biases.run_schemes("anywhere")
    assert list(schemes) == ["t5, trained"]
    np.testing.assert_array_equal(
        biases.bias_curve(schemes["t5, trained"], 9), np.full((config.num_heads, 10), 2.5)
    )
    rope = model_config("rope")
    run.model_config, run.params = rope, models.split(models.build(rope, 0))[1]
    with pytest.raises(ValueError, match="rope adds no bias"):
        biases.run_schemes("anywhere")


def test_the_gallery_imports_nothing_of_ours_and_draws_only_when_asked():
    allowed = {"posenc", "jax", "numpy", "flax", "absl", *sys.stdlib_module_names}
    for path in sorted((ROOT / "posenc" / "gallery").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom):
                assert node.module and node.module.split(".")[0] in allowed, path


def test_the_page_needs_nothing_from_elsewhere(monkeypatch):
    monkeypatch.setattr(grids, "arrays", lambda schemes: {})
    text = page.build({"alibi": posenc.create("alibi", biases.SMALL)})
    assert len(text) < 5_500_000  # Plotly, once
    ours = re.sub(r'<script id="plotly">.*?</script>', "", text, flags=re.DOTALL)
    assert len(ours) < 60_000
    for outside in ("http:", "https:", "src=", "href=", "@import", "url("):
        assert outside not in ours, outside
    for identifier, target in re.findall(
        r'<(?:input|select)[^>]*? id="([^"]+)" data-control="(\w+)"', ours
    ):
        assert f'<label for="{identifier}">{page.UNITS[target]}</label>' in ours
    drawn = set(re.findall(r"^  (\w+)\(look\) {", page.read("page.js"), re.MULTILINE))
    assert drawn == {section.name for section in page.SECTIONS}
