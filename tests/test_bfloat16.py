"""bfloat16 activations against float32, at 16 times the training length.

A bfloat16 has 8 bits: a rounding is by up to 1/512 of the value, and each loss here comes from some
dozens of them. Positions, angles, biases, logits and softmax are float32 in either case, so the
roundings do not grow with the position: the last quarter of 16·L tokens may be off by no more than
the tolerance that holds for all.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_models import SPECS, L, V, make

N = 16 * L
TOKENS = jax.random.randint(jax.random.key(2), (1, N + 1), 0, V)
# Nats a token: of the mean loss, the mean distance of two losses, and the farthest; measured over
# all schemes are 0.0012, 0.0053 and 0.032.
MEAN, DISTANCE, FARTHEST = 0.005, 0.01, 0.1
QUICK = {"rope", "alibi", "sinusoidal"}
REACHING = [s for s in SPECS if s != "learned"]  # its table ends at L; interpolated it goes on


def losses(position, dtype):
    """The nll of each target, float32 [N], at the length of all."""
    model = make(position, dtype=dtype).at_length(N)

    @jax.jit
    def run(tokens):
        logits = jax.nn.log_softmax(model(tokens[:, :-1]))
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[0, :, 0]

    return np.asarray(run(TOKENS), np.float64)


@pytest.mark.parametrize(
    "position", [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in REACHING]
)
def test_losses_in_bfloat16_stay_near_those_in_float32(position):
    apart = losses(position, "bfloat16") - losses(position, "float32")
    last = np.abs(apart[-N // 4 :])
    assert abs(apart.mean()) < MEAN
    assert np.abs(apart).mean() < DISTANCE and last.mean() < DISTANCE
    assert np.abs(apart).max() < FARTHEST
    assert np.abs(apart).max() > 1e-4  # it was computed in bfloat16
