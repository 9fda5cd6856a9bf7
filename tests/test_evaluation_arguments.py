"""What the flags of an evaluation may say: small and empty values mean what they say or are refused."""

import subprocess
import sys

import pytest
from absl import flags
from test_train import ROOT

import eval_extrapolation as command
from evaluation import arguments


@pytest.fixture
def given(monkeypatch):
    """Sets flags for one test: given(lengths="32")."""

    def give(**values):
        defaults = {"schemes": None, "lengths": None, "protocols": "fixed", "stride": None}
        defaults |= {"targets": None, "checkpoint": "latest", "text": None, "diagnostics": False}
        for name, value in (defaults | {"append": False} | values).items():
            monkeypatch.setattr(command, name.upper(), type("Flag", (), {"value": value}))

    return give


def test_lengths_are_sorted_and_merged():
    assert arguments.read_lengths("64, 16,64,016") == [16, 64]
    assert arguments.split_list("runs", "b, a,b,") == ["b", "a"]
    assert arguments.split_schemes("rope,yarn:factor=8,beta_fast=16, rope") == [
        "rope",
        "yarn:factor=8,beta_fast=16",
    ]


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "٣", "16,x", "16,-0", "true"])
def test_a_length_is_a_positive_whole_number(text):
    with pytest.raises(ValueError, match="must be a positive whole number"):
        arguments.read_lengths(text)


@pytest.mark.parametrize("text", ["1000000000", "9" * 5000])
def test_a_length_past_every_document_is_refused(text):
    with pytest.raises(ValueError, match="must be below 1000000000"):
        arguments.read_lengths(text)


def test_999999999_is_a_length():
    assert arguments.read_lengths("999999999") == [999999999]


@pytest.mark.parametrize("number", [0, -1, 10**9, 10**40, True, 2.0, "3"])
@pytest.mark.parametrize("name", ["lengths", "targets", "batch_size", "train_length", "stride"])
def test_what_a_sweep_is_given_are_positive_integers(name, number):
    told = {"lengths": [64], "targets": 32, "batch_size": 8, "train_length": 64, "stride": 64}
    told[name] = [number] if name == "lengths" else number
    with pytest.raises(ValueError, match=f"^{name} "):
        arguments.checked(protocol="fixed", **told)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"runs": ","}, "--runs=, names nothing"),
        ({"protocols": ","}, "--protocols=, names nothing"),
        ({"protocols": ""}, "--protocols= names nothing"),
        ({"lengths": ""}, "--lengths= names nothing"),
        ({"lengths": " , "}, "--lengths= ,  names nothing"),
        ({"schemes": ","}, "--schemes=, names nothing: leave it out for each run's own"),
        ({"schemes": ""}, "--schemes= names nothing"),
        ({"checkpoint": ""}, "--checkpoint= is empty"),
        ({"text": ""}, "--text= is empty"),
        ({"text": " "}, "--text= is empty"),
        (
            {"diagnostics": True, "protocols": "disjoint"},
            "--diagnostics reads the windows of fixed",
        ),
    ],
)
def test_an_empty_flag_is_no_default(given, values, message):
    given(**{"runs": "runs/none", **values})
    with pytest.raises(ValueError) as caught:
        command.plan()
    assert message in str(caught.value)


@pytest.mark.parametrize("word", ["--targets=0", "--stride=0", "--stride=-4", "--targets=x"])
def test_a_number_below_one_is_refused_by_its_flag(word):
    name = word[2:].partition("=")[0]
    flag = command.flags.FLAGS[name]
    with pytest.raises(flags.IllegalFlagValueError, match=f"flag --{name}="):
        flag.parse(word.partition("=")[2])


def test_targets_of_zero_end_the_command_in_one_line(tmp_path):
    words = [sys.executable, ROOT / "eval_extrapolation.py", "--runs=x", f"--out={tmp_path}/out"]
    done = subprocess.run([*words, "--targets=0"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "--targets=0" in done.stderr and not (tmp_path / "out").exists()


def test_what_a_flag_does_not_reach_is_said(given, capsys):
    given(stride=64, targets=16, text="x")
    command.tell_unused(["fixed"])
    assert capsys.readouterr().err == ""
    command.tell_unused(["fixed", "sliding", "disjoint"])
    assert capsys.readouterr().err == (
        "note: --stride goes to fixed and sliding; disjoint takes none\n"
        "note: --targets goes to fixed; sliding, disjoint takes none\n"
    )
    given(text="x")
    command.tell_unused(["probe:copy"])
    assert "--text is not read" in capsys.readouterr().err
