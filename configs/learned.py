"""A learned vector per position (GPT-2's scheme).

    python train.py --config=configs/learned.py --workdir=runs/learned

Expected: as good as sinusoidal at the training length and undefined past it, which the curve shows
as such; `eval_extrapolation.py --schemes=learned:extend=interpolate` stretches the table instead.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("learned")
