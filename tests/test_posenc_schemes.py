"""How schemes are spelled, and what a spelling is read to."""

import numpy as np
import pytest
from flax import nnx

import posenc

DIMS = posenc.Dims(D=8, H=2, K=8, train_length=16)
ONES = "1/1/1/1"


@pytest.mark.parametrize(
    "spec, parts",
    [
        ("rope", [("rope", {})]),
        (" rope + log_n ", [("rope", {}), ("log_n", {})]),
        ("yarn:factor=4, beta_fast = 32", [("yarn", {"factor": 4, "beta_fast": 32})]),
        ("a:x=0.5,y=1e4,z=auto", [("a", {"x": 0.5, "y": 1e4, "z": "auto"})]),
        ("a:x=true,y=False,z=None", [("a", {"x": True, "y": False, "z": None})]),
        ("a:x=1/1.05/2,y=3/", [("a", {"x": (1, 1.05, 2), "y": (3,)})]),
        ({"scheme": "a", "x": [1, 2.5], "y": np.float32(0.5)}, [("a", {"x": (1, 2.5), "y": 0.5})]),
        ({"scheme": "a", "x": np.array([1, 2])}, [("a", {"x": (1, 2)})]),
    ],
)
def test_a_spelling_is_read_to_values_of_their_kind(spec, parts):
    read = posenc.parse_spec(spec)
    assert read == parts
    for (_, options), (_, expected) in zip(read, parts, strict=True):
        assert [type(v) for v in options.values()] == [type(v) for v in expected.values()]
    assert posenc.parse_spec(posenc.format_spec(read)) == read


@pytest.mark.parametrize(
    "parts, text",
    [
        ([("yarn", {"factor": 4.0}), ("log_n", {})], "yarn:factor=4+log_n"),
        ([("a", {"x": 0.25, "y": (1.0, 1.5), "z": (2,)})], "a:x=0.25,y=1/1.5,z=2/"),
        ([("a", {"x": 2e16, "y": 1e-7, "z": True})], "a:x=2e16,y=1e-07,z=True"),
    ],
)
def test_the_one_line_spelling(parts, text):
    assert posenc.format_spec(parts) == text
    assert posenc.parse_spec(text) == parts


@pytest.mark.parametrize(
    "spec, options, message",
    [
        ("pi:factor=2", {"factor": 4}, "pi:factor=2: factor is given twice"),
        ("pi:factor=2,factor=4", {}, "factor is given twice"),
        ("rope+yarn", {}, "rope and yarn both rotate queries and keys; keep one"),
        ("rope:base=", {}, "should read option=value, as in rope:base=10000"),
        ("rope:,", {}, "should read option=value"),
        ("2rope", {}, "'2rope' is not a scheme's name"),
        ("alibi+alibi", {}, "alibi stands twice in alibi"),
        ("pi:factor=true", {}, "factor=True must be a number"),
        ("window:size=true", {}, "size=True must be a whole number"),
        ("t5:num_buckets=8.0", {}, "num_buckets=8.0 must be a whole number"),
        ("log_n:clip=1", {}, "clip=1 must be one of True, False"),
        ("sinusoidal:factor=0.5", {}, "factor=0.5 must be a number of at least 1"),
        ("rope:positions=randomized,max_position=15", {}, "length 16 needs 16 distinct"),
        ("dynamic_yarn", {"base": 2, "original_length": 6}, "original_length=6 is below 6.283"),
        ("ntk_by_parts:beta_slow=0.5", {"original_length": 6}, "original_length=6 is below 6.283"),
    ],
)
def test_refused_in_words(spec, options, message):
    with pytest.raises(ValueError, match=message):
        posenc.create(spec, DIMS, nnx.Rngs(0), **options)


def test_limits_that_are_closed_are_reached():
    assert posenc.create("sinusoidal:factor=1", DIMS).factor == 1
    assert posenc.create("p_rope:p=0", DIMS).p == 0 and posenc.create("p_rope:p=1", DIMS).p == 1
    assert posenc.create("rope:positions=randomized,max_position=16", DIMS).max_position == 16
    scheme = posenc.create("window:size=1", DIMS)
    assert scheme.size == 1 and scheme.idle(1)


def test_keywords_join_what_the_string_says():
    scheme = posenc.create("yarn:beta_fast=16", DIMS, factor=4)
    assert scheme.beta_fast == 16 and scheme.factor == 4


def test_a_window_goes_with_embeddings_where_it_does_not_stream():
    both = posenc.create("sinusoidal+window:size=4,sinks=1", DIMS)
    assert list(both.parts) == ["sinusoidal", "window"]


def test_options_are_listed_with_a_schemes_own_first():
    names = posenc.option_names("yarn")
    assert names[0] == "factor"
    assert {"factor", "original_length", "base", "rotary_fraction", "positions"} <= set(names)
    assert "factor" not in posenc.option_names("rope")


@pytest.mark.parametrize("name", ["pi", "ntk", "yarn", "llama3", "ntk_by_parts", "sinusoidal"])
def test_randomised_positions_depend_on_the_length_whatever_the_factor(name):
    """The scheme at a fixed factor does not; its positions do."""
    options = "factor=4,original_length=32" if name != "sinusoidal" else "factor=4"
    fixed = posenc.create(f"{name}:{options}", DIMS)
    drawn = posenc.create(f"{name}:{options},positions=randomized", DIMS)
    assert fixed.prefix_invariant and not drawn.prefix_invariant


def test_longrope_is_never_prefix_invariant_nor_idle():
    lists = f"longrope:short_factor={ONES},long_factor=1/2/3/4,factor=1"
    scheme = posenc.create(lists, DIMS)
    assert not scheme.prefix_invariant and scheme.idle(1000) is None


def test_an_odd_product_of_p_and_pairs_is_not_lost_to_binary():
    """0.58·50 is 28.999999999999996 in binary."""
    dims = posenc.Dims(D=8, H=1, K=100, train_length=16)
    frequencies = posenc.create("p_rope:p=0.58", dims).inverse_frequencies()
    assert np.count_nonzero(frequencies) == 29


def test_xpos_counts_from_the_middle_of_the_positions_drawn():
    drawn = posenc.create("xpos:positions=randomized,max_position=64", DIMS)
    middle = drawn.powers(np.array([0, 32, 64], np.int32))
    np.testing.assert_allclose(middle[1], 1)
    np.testing.assert_allclose(middle[0] * middle[2], 1, rtol=1e-6)
    with pytest.raises(posenc.LengthError, match="scale_base=1 reaches 128 tokens"):
        posenc.create("xpos:positions=randomized,max_position=129,scale_base=1", DIMS)
