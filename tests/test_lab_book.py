"""What the documents and the configs say was measured is what the records hold."""

import re
import sys
from pathlib import Path

import pytest

from configs import base
from configs.studies import published as study
from evaluation import read_records, read_statistics
from evaluation.curves import gather

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
sys.path.insert(0, str(ROOT / "docs"))

import claims  # noqa: E402 (docs/ is put on the path above)

MEASURED = ["README.md", "docs/results/README.md"]
MEASURED += [
    f"docs/{name}.md"
    for name in ("probes", "statistics", "performance", "long_evaluation", "diagnostics")
]
# Decimals that are no measurement: versions, licences, percentiles, a bound that is advised, the
# spread of a simulation, which benchmarks/coverage.py sets.
OTHER = {
    "README.md": ["3.11", "0.6", "2.5"],
    "docs/statistics.md": ["2.5", "97.5", "1.96", "97.5", "0.6"],
    "docs/probes.md": ["0.9"],
}


def prose(text):
    """The text without generated parts, commands, code and links."""
    text = re.sub(r"<!-- ([^>]+) -->\n.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))


@pytest.mark.parametrize("document", MEASURED)
def test_every_decimal_in_prose_is_claimed_from_a_record(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for words, _ in claims.claims().get(document, []):
        text = re.sub(claims.sentence(words), "", text)
    assert re.findall(r"\d+\.\d+", prose(text)) == OTHER.get(document, [])


def test_a_claim_is_put_in_its_place():
    text = "a was 1.2\nand b −3,000.\nOther 1.2."
    made = claims.state("d", text, "a was {:.2f} and b {:,}.", (1.304, 12345))
    assert made == "a was 1.30\nand b 12,345.\nOther 1.2."
    for wrong in ("c was {}", "{:.1f}"):  # not there, and there three times
        with pytest.raises(ValueError, match="d says .* times, and should say it once"):
            claims.state("d", text, wrong, (1.0,))


def curves(folder):
    found = gather(read_records(RESULTS / folder), "fixed", read_statistics(RESULTS / folder))
    return {curve.label: dict(zip(curve.lengths, curve.nll, strict=True)) for curve in found}


def test_the_published_sentences_without_a_figure_hold():
    """Those of docs/results/README.md, in their order."""
    found, rows = curves("published"), read_statistics(RESULTS / "published")
    verdict = {(r["a"], r["b"], r["length"]): r["verdict"] for r in rows if "verdict" in r}
    answers = {(r["label"], r["length"]): r["answer"] for r in rows if "answer" in r}
    alibi, rope, pi, ntk, yarn = (found[name] for name in ("alibi", "rope", "pi", "ntk", "yarn"))
    past = [256, 512, 1024, 2048]
    assert abs(alibi[2048] - alibi[128]) < 0.01  # "to a hundredth"
    assert found["sinusoidal"][256] - found["sinusoidal"][128] > 1.5  # "fails at once"
    assert list(found["learned"]) == [128]
    assert all(verdict["rope", "pi", n] in ("undecided", "lower") for n in past)
    assert all(verdict[name, "ntk", n] == "higher" for name in ("rope", "pi") for n in past)
    assert [verdict["ntk", "yarn", n] for n in past] == ["undecided"] + ["higher"] * 3
    pi_tuned, yarn_tuned = found[claims.PI], found[claims.YARN]
    assert max(pi_tuned[n] for n in (128, 256, 512)) < 1.75 and pi_tuned[1024] > 3
    assert abs(yarn_tuned[512] - rope[128]) < 0.02 and yarn_tuned[1024] > 2.5
    assert "yes" not in answers.values()  # "no scheme gains"
    assert all(yarn[n] > rope[128] + 0.05 for n in past)


def test_the_sentences_on_probes_without_a_figure_hold():
    rows = read_records(RESULTS / "probes")
    at = {(r["protocol"][6:], r["scheme"], r["length"]): r for r in rows}
    depths = [share for _, share, _ in at["passkey", "alibi", 256]["by_depth"]]
    assert depths == sorted(depths) and depths[0] < 0.8 and depths[-1] == 1  # shallow ones first
    assert all(share == 0 for _, share, _ in at["passkey", "rope", 64]["by_depth"])
    assert min(at["passkey", scheme, 32]["accuracy"] for scheme in ("alibi", "rope")) > 0.95
    schemes = ("nope", "rope", "alibi", "t5")
    for task in ("copy", "reverse"):
        best = max(schemes, key=lambda scheme: at[task, scheme, 32]["accuracy"])
        assert best == "rope" and at[task, "rope", 64]["accuracy"] == 0
    assert at["reverse", "alibi", 32]["accuracy"] < 0.1
    assert max(at["sort", scheme, 64]["accuracy"] for scheme in schemes[1:]) == 0
    assert max(at["addition", scheme, 16]["accuracy"] for scheme in schemes) <= 0.1
    assert {r["seed"] for r in rows} == {0} and len({r["protocol"] for r in rows}) == 6


def test_the_study_that_the_lab_book_describes_is_the_one_there_is():
    """Sizes in words: 0.8 M parameters, D 128, 4 layers and heads, 2,048 bytes a step, 2 M in all."""
    config, steps = base.get_config(), read_records(RESULTS / "published")[0]["step"]
    model, flags = config.model, study.get_config().train
    assert (model.d_model, model.num_layers, model.num_heads) == (128, 4, 4)
    assert "d_model" not in flags and "num_layers" not in flags
    length, rows = (
        int(re.search(rf"train\.{n}=(\d+)", flags)[1]) for n in ("length", "batch_size")
    )
    assert length * rows == 2048 and 2048 * steps == pytest.approx(2e6, rel=0.05)
    assert len({(r["run"], r["seed"]) for r in read_records(RESULTS / "published")}) == 18


def flat(curve, within):
    return max(curve.values()) - min(curve.values()) < within


def rise(curve):
    return curve[1024] - curve[64]


# config -> whether the record of all schemes at the demo's size bears its "Expected" out
EXPECTED = {
    "alibi": lambda c: flat(c["alibi"], 0.02),
    "cope": lambda c: c["cope"][64] > c["rope"][64] and rise(c["cope"]) < rise(c["rope"]),
    "deberta": lambda c: (
        c["deberta:max_distance=64"][64] < c["rope"][64] + 0.02
        and rise(c["deberta:max_distance=64"]) < 0.1
    ),
    "dynamic_ntk": lambda c: c["dynamic_ntk"] == pytest.approx(c["ntk"], abs=0.01),
    "dynamic_pi": lambda c: (
        c["dynamic_pi"] == pytest.approx(c["pi"], abs=0.01)
        and all(c["pi"][n] > c["rope"][n] for n in c["pi"] if n > 64)
    ),
    "dynamic_yarn": lambda c: (
        rise(c["dynamic_yarn"])
        <= min(rise(c[name]) for name in ("rope", "pi", "ntk", "ntk_by_parts", "yarn", "llama3"))
        + 1e-3
    ),
    "fire": lambda c: (
        sorted(
            c[name][64] for name in ("alibi", "t5:max_distance=64", "kerple", "sandwich", "fire")
        )[1]
        == c["fire"][64]
        and 0.1 < rise(c["fire"]) < rise(c["t5:max_distance=64"])
    ),
    "kerple": lambda c: (
        all(c["kerple"][n] > c["alibi"][n] for n in c["alibi"]) and 0 < rise(c["kerple"]) < 0.1
    ),
    "learned": lambda c: (
        list(c["learned"]) == [64] and abs(c["learned"][64] - c["sinusoidal"][64]) < 0.02
    ),
    "llama3": lambda c: c["yarn"][1024] < c["llama3"][1024] < c["ntk_by_parts"][1024],
    "local_global": lambda c: (
        abs((mixed := next(v for k, v in c.items() if "|" in k))[64] - c["rope"][64]) < 0.02
        and 0.1 < rise(mixed) < rise(c["rope"])
    ),
    "log_n": lambda c: (
        abs(c["rope+log_n (log_n)"][64] - c["rope"][64]) < 0.01
        and rise(c["rope+log_n (log_n)"]) > rise(c["rope"])
    ),
    "longrope": lambda c: all(
        v[n] > c["rope"][n] - 0.01 for k, v in c.items() if k.startswith("longrope") for n in v
    ),
    "nope": lambda c: (
        c["nope (nope)"][64] > c["rope"][64] and 0 < rise(c["nope (nope)"]) < rise(c["rope"])
    ),
    "ntk": lambda c: all(c["ntk"][n] < c["rope"][n] for n in c["ntk"] if n > 64),
    "ntk_by_parts": lambda c: all(c["ntk_by_parts"][n] > c["yarn"][n] for n in c["yarn"] if n > 64),
    "p_rope": lambda c: abs(c["p_rope"][64] - c["rope"][64]) < 0.05 and rise(c["p_rope"]) > 1,
    "rope": lambda c: (
        c["rope"][64] - min(curve[64] for curve in c.values()) < 0.05 and rise(c["rope"]) > 1
    ),
    "sandwich": lambda c: (
        flat(c["sandwich"], 0.05)
        and all(c["sandwich"][n] < min(c["alibi"][n], c["kerple"][n]) for n in c["alibi"])
    ),
    "shaw": lambda c: abs(c["shaw"][64] - c["rope"][64]) < 0.02 and 0.02 < rise(c["shaw"]) < 0.1,
    "sinusoidal": lambda c: c["sinusoidal"][128] - c["sinusoidal"][64] > 1,
    "t5": lambda c: (
        0.1 < c["t5:max_distance=64"][128] - c["t5:max_distance=64"][64]
        and rise(c["t5:max_distance=64"]) < rise(c["rope"])
    ),
    "transformer_xl": lambda c: (
        c["transformer_xl"][64] <= c["rope"][64] and flat(c["transformer_xl"], 0.02)
    ),
    "window": lambda c: flat(c["rope+window:size=32"], 0.02),
    "xlnet": lambda c: c["xlnet"] == c["transformer_xl"],
    "xpos": lambda c: (
        abs(c["xpos:scale_base=32"][64] - c["rope"][64]) < 0.02
        and rise(c["xpos:scale_base=32"]) < 0.1
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_config_expects_is_what_was_found(name):
    assert "Expected" in (ROOT / "configs" / f"{name}.py").read_text(encoding="utf-8")
    assert EXPECTED[name](curves("all_schemes"))


def test_the_fine_tunes_and_the_demo_end_as_their_configs_expect():
    demo, large = curves("seven_schemes"), curves("published")
    tuned, plain = demo["pi:factor=4,original_length=64"][256], demo["rope"][64]
    above = tuned - plain, demo["pi"][256] - plain
    words = (
        "at 256 tokens, a loss {:.1f} nats above RoPE's at 64; without the fine-tune it is {:.1f}"
    )
    assert words.format(*above) in " ".join((ROOT / "configs/pi.py").read_text().split())
    assert abs(large[claims.YARN][512] - large["rope"][128]) < 0.02
    assert large[claims.YARN][512] < large[claims.PI][512]
    at = {name: curve[1024] for name, curve in demo.items() if 1024 in curve}
    assert abs(at["alibi"] - demo["alibi"][64]) < 0.02 and "learned" not in at
    order = ["alibi", "yarn", "ntk", "rope", "pi"]
    assert sorted(order, key=at.get) == order


def test_the_check_of_the_documents_names_what_differs(tmp_path, monkeypatch, capsys):
    """A figure in a sentence, a table and a picture that are not what the records give."""
    import shutil

    import build

    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(build, "parts", lambda: {"a.md": {"part": "| 1.5 |\n"}, "c.md": {}})
    stated = {"a.md": [("it is {:.1f} nats", (0.25,))], "b.md": [("of {} seeds", (3,))]}
    monkeypatch.setattr(claims, "claims", lambda: stated)
    monkeypatch.setattr(sys, "argv", ["build.py", "--check"])
    right = {
        "a.md": "it is 0.2 nats\n<!-- part -->\n| 1.5 |\n<!-- /part -->\n",
        "b.md": "of 3 seeds",
    }
    right["c.md"] = "nothing"

    def check(**changed):
        for name, text in (right | {f"{k}.md": v for k, v in changed.items()}).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        status = build.main()
        return status, capsys.readouterr().out

    assert check() == (0, "up to date\n")
    for name, text in (("a", right["a.md"].replace("0.2", "0.3")),
                       ("a", right["a.md"].replace("1.5", "1.6")), ("b", "of 4 seeds")):  # fmt: skip
        assert check(**{name: text}) == (1, f"{name}.md differs: run docs/build.py\n")
    folder = tmp_path / "results" / "demo"
    shutil.copytree(RESULTS / "seven_schemes", folder)
    assert check() == (0, "up to date\n")
    with (folder / "curves.svg").open("a") as file:
        file.write(" ")
    assert check() == (1, "results/demo/curves.svg differs: run docs/build.py\n")
