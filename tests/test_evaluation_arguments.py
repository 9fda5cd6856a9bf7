"""What the flags of an evaluation may say: small and empty values mean what they say or are refused."""

import subprocess
import sys

import pytest
from absl import flags
from test_train import ROOT

import eval_extrapolation as command
from evaluation import arguments


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
    assert "--targets='0' must be a whole number, at least 1" in done.stderr
    assert not (tmp_path / "out").exists()
