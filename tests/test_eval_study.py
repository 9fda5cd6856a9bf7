"""A study's commands, what a mistake in its config says, and which evaluation goes on with a report."""

import json
import shlex
from pathlib import Path

import pytest
from absl import flags
from ml_collections import ConfigDict

from configs.studies import smoke


def load():
    """study.py as a module. Its flags are named as train.py's are, which may be loaded as well."""
    names = ("config", "workdir", "print_commands")
    others = {name: flags.FLAGS[name] for name in names if name in flags.FLAGS}
    for name in others:
        delattr(flags.FLAGS, name)
    import study

    for name in names:
        delattr(flags.FLAGS, name)
    for name, flag in others.items():
        flags.FLAGS[name] = flag
    return study


study = load()

WORKDIR = Path("runs/s")
NONE = object()


def changed(**values):
    config = smoke.get_config()
    for name, value in values.items():
        if value is NONE:
            del config[name]
        else:
            with config.ignore_type():
                config[name] = value
    return config


def test_the_commands_of_a_study(monkeypatch):
    monkeypatch.chdir(study.HERE)
    commands = study.study_commands(
        changed(
            train="--config.seed=3",
            runs=(
                {"name": "a", "config": "configs/smoke.py"},
                {"name": "b", "config": "configs/pi.py", "init_from": "a", "flags": "--x='1 2'"},
            ),
            evaluate="--stride=64",
            evaluations=({"runs": "a, b", "flags": "--lengths=64"}, {"runs": "b", "schemes": "pi"}),
        ),
        WORKDIR,
    )
    evaluation, out = "eval_extrapolation.py", "--out=runs/s/report"
    assert commands == [
        ["train.py", "--config=configs/smoke.py", "--workdir=runs/s/a", "--config.seed=3"],
        ["train.py", "--config=configs/pi.py", "--workdir=runs/s/b", "--init_from=runs/s/a",
         "--config.seed=3", "--x=1 2"],
        [evaluation, "--runs=runs/s/a,runs/s/b", out, "--stride=64", "--lengths=64"],
        [evaluation, "--runs=runs/s/b", out, "--schemes=pi", "--append", "--stride=64"],
    ]  # fmt: skip


RUN, EVALUATION = {"name": "rope", "config": "configs/smoke.py"}, {"runs": "rope"}


@pytest.mark.parametrize(
    "values, message",
    [
        ({"train": NONE}, "config.train=None must be flags in one string"),
        ({"evaluate": NONE}, "config.evaluate=None must be flags in one string"),
        ({"train": ("--x",)}, "config.train=('--x',) must be flags in one string"),
        ({"evaluate": 3}, "config.evaluate=3 must be flags"),
        ({"train": "--x='"}, 'config.train="--x=\'": No closing quotation'),
        ({"evaluations": NONE}, "config.evaluations=None must be a tuple"),
        ({"evaluations": ()}, "config.evaluations=() must be a tuple of one entry or more"),
        ({"evaluations": "rope"}, "config.evaluations='rope' must be a tuple"),
        ({"evaluations": ("rope",)}, "config.evaluations[0]='rope' must be a dict with runs"),
        ({"evaluations": (EVALUATION, {})}, "config.evaluations[1]: runs is missing"),
        ({"evaluations": ({"runs": ""},)}, "config.evaluations[0]: runs='' must be a string"),
        ({"evaluations": ({"runs": "x"},)}, "config.evaluations[0]: x is no run before it"),
        ({"evaluations": ({"runs": "rope", "scheme": "pi"},)}, "evaluations[0]: no field scheme"),
        ({"evaluations": ({"runs": "rope", "schemes": ""},)}, "schemes='' must be a string"),
        ({"runs": None}, "config.runs=None must be a tuple"),
        ({"runs": ()}, "config.runs=() must be a tuple"),
        ({"runs": (None,)}, "config.runs[0]=None must be a dict with name, config"),
        ({"runs": ({"name": "a"},)}, "config.runs[0]: config is missing"),
        ({"runs": (RUN | {"name": None},)}, "config.runs[0]: name=None must be a string"),
        ({"runs": (RUN | {"flags": None},)}, "config.runs[0]: flags=None must be a string"),
        ({"runs": (RUN | {"flags": "'"},)}, 'config.runs[0]: name=rope: flags="\'": No closing'),
        ({"runs": (RUN, RUN)}, "config.runs[1]: name=rope: there is an earlier run of that name"),
        ({"runs": (RUN | {"name": "a,b"},)}, "without a comma"),
        ({"runs": (RUN | {"name": "../a"},)}, "config.runs[0]: name=../a: it must name a folder"),
        ({"runs": (RUN | {"name": "report"},)}, "it must name a folder beside report"),
        ({"runs": (RUN | {"name": ".."},)}, "it must name a folder beside report"),
        ({"runs": (RUN | {"init_from": "b"},)}, "config.runs[0]: name=rope: b is no run before it"),
    ],
)
def test_a_mistake_in_a_study_names_its_field(values, message):
    with pytest.raises(ValueError) as caught:
        study.study_commands(changed(**values), WORKDIR)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_plain_dict_is_a_study_too():
    assert len(study.study_commands(smoke.get_config().to_dict(), WORKDIR)) == 4
    with pytest.raises(ValueError, match=r"config.train=None"):
        study.study_commands({"runs": 3}, WORKDIR)


def test_the_commands_printed_are_a_script_that_says_what_waits(capsys, monkeypatch):
    monkeypatch.setattr("sys.executable", str(study.HERE / ".venv/bin/python"))
    study.print_commands(study.study_commands(smoke.get_config(), WORKDIR))
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert [words[:2] for words in commands] == [
        [".venv/bin/python", "train.py"],
        [".venv/bin/python", "train.py"],
        [".venv/bin/python", "eval_extrapolation.py"],
        [".venv/bin/python", "eval_extrapolation.py"],
    ]
    assert ["--append" in words for words in commands] == [False, False, False, True]
    assert lines[0] == f"# To be run in {study.HERE}"
    kinds = "".join(("#" if line[0] == "#" else line.split()[1][0]) for line in lines)
    assert kinds == "##tt##ee"
    monkeypatch.setattr("sys.executable", "/opt/python/bin/python3")
    assert study.python() == "/opt/python/bin/python3"


def test_a_report_is_gone_on_with_by_the_same_evaluations_alone(tmp_path):
    first, other = [["eval", "--lengths=1"]], [["eval", "--lengths=2"]]
    records = tmp_path / "report" / "records.jsonl"
    records.parent.mkdir()
    assert not study.continues(tmp_path, first)  # nothing there yet
    assert not study.continues(tmp_path, first)  # nor after a start that was killed at once
    records.write_text("{}\n")
    assert study.continues(tmp_path, first) and study.continues(tmp_path, first)
    assert not study.continues(tmp_path, other)  # what is there is another's
    assert not study.continues(tmp_path, other)  # and is still there
    records.write_text("{}\n{}\n")
    assert study.continues(tmp_path, other) and not study.continues(tmp_path, first)
    (tmp_path / "evaluations.json").write_text("{")
    assert not study.continues(tmp_path, first)
    assert json.loads((tmp_path / "evaluations.json").read_text())["evaluations"] == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evaluations.json", "report"]


def test_what_a_study_runs_and_how_it_ends(tmp_path, monkeypatch, capsys):
    """The first evaluation appends to its own earlier records; a failed point does not end the study."""
    config = ConfigDict(changed().to_dict())
    ran, statuses = [], {}

    def run(words):
        ran.append(words)
        if words[0] == "eval_extrapolation.py":
            (tmp_path / "report").mkdir(exist_ok=True)
            (tmp_path / "report" / "records.jsonl").write_text("{}\n")
        return statuses.get(len(ran), 0)

    monkeypatch.setattr(study, "run", run)
    monkeypatch.setattr(study, "finished", lambda words: True)
    monkeypatch.setattr(study, "CONFIG", type("F", (), {"value": config}))
    monkeypatch.setattr(study, "WORKDIR", type("F", (), {"value": str(tmp_path)}))
    monkeypatch.setattr(study, "PRINT_COMMANDS", type("F", (), {"value": False}))
    assert study.main() == 0
    assert [w[0] for w in ran] == ["train.py"] * 2 + ["eval_extrapolation.py"] * 2
    assert ["--append" in words for words in ran] == [False, False, False, True]
    ran.clear()
    statuses[3] = 1
    assert study.main() == 1 and len(ran) == 4
    assert ["--append" in words for words in ran] == [False, False, True, True]
    for number, status in ((3, 2), (1, 1)):
        ran.clear()
        statuses.clear()
        statuses[number] = status
        assert study.main() == status and len(ran) == number
    ran.clear()
    statuses.clear()
    monkeypatch.setattr(study, "finished", lambda words: False)
    assert study.main() == 1 and len(ran) == 1
    assert "[1/4] " in capsys.readouterr().out
