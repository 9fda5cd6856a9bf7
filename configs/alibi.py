"""ALiBi: a linear penalty on distance (Press, Smith & Lewis 2022).

    python train.py --config=configs/alibi.py --workdir=runs/alibi

Expected: flat, or slightly falling, to many times the training length (their figure 1).
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("alibi")
