"""Which scheme may read which checkpoint, and what it takes over."""

import pytest
from flax import nnx

import posenc

DIMS = posenc.Dims(D=8, H=2, K=8, train_length=16)


def swapped(trained, asked):
    parts = posenc.swap(posenc.parse_spec(trained), posenc.parse_spec(asked), DIMS)
    return posenc.format_spec(parts)


@pytest.mark.parametrize(
    "trained, asked, completed",
    [
        ("rope", "rope", "rope"),
        ("rope:base=500", "pi:factor=1", "pi:base=500,factor=1"),
        ("rope:base=500", "pi:base=100", "pi:base=100"),
        ("rope:base=500,pairing=interleaved", "yarn", "yarn:base=500,pairing=interleaved"),
        ("rope:base=500", "nope", "nope"),
        ("pi:factor=4", "yarn", "yarn:factor=4"),
        ("pi:factor=4", "yarn:factor=2", "yarn:factor=2"),
        ("pi:factor=4,base=500", "dynamic_ntk", "dynamic_ntk:base=500"),
        ("dynamic_ntk:factor=2", "ntk", "ntk"),
        ("dynamic_ntk:factor=2", "dynamic_ntk", "dynamic_ntk:factor=2"),
        ("rope", "rope+log_n", "rope+log_n"),
        ("rope", "pi+alibi", "pi+alibi"),
        ("rope+log_n", "rope", "rope"),
        ("rope+t5", "yarn+t5", "yarn+t5"),
        ("alibi", "alibi:slope_scale=0.5", "alibi:slope_scale=0.5"),
        ("window:size=4", "nope", "nope"),
        (
            "rope:positions=randomized,max_position=64",
            "rope:positions=arange",
            "rope:positions=arange",
        ),
        ("yarn:truncate=False", "yarn:ramp=wavelength", "yarn:ramp=wavelength"),
    ],
)
def test_what_a_swap_takes_over(trained, asked, completed):
    assert swapped(trained, asked) == completed
    posenc.create(completed, DIMS, nnx.Rngs(0))


@pytest.mark.parametrize(
    "trained, asked, why",
    [
        ("rope", "learned", "it lacks learned.table"),
        ("rope", "rope+t5", "it lacks t5.table"),
        ("learned", "rope", "learned.table would be left unused"),
        ("t5+rope", "rope", "t5.table would be left unused"),
        ("rope", "alibi", "rope serves rope, nope, pi"),
        ("sinusoidal", "nope", "sinusoidal serves sinusoidal"),
        ("xpos", "rope", "xpos serves xpos"),
    ],
)
def test_what_is_no_swap(trained, asked, why):
    with pytest.raises(ValueError, match="cannot be read as") as refused:
        swapped(trained, asked)
    assert why in str(refused.value)
