"""KERPLE: a learned logarithmic penalty on distance, one curve per head (Chi et al. 2022).

    python train.py --config=configs/kerple.py --workdir=runs/kerple

`--config.position=kerple:kind=power` is the other variant of the paper. Expected: flat, or slightly
falling, to many times the training length, and a little below ALiBi, in its paper. At the demo's
size it rises slowly and stays above ALiBi.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("kerple")
