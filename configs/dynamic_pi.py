"""Dynamic position interpolation: PI by the length at hand (Peng et al. 2023, section 3.4).

    python train.py --config=configs/dynamic_pi.py --workdir=runs/dynamic_pi

At the training length it is plain RoPE, so this trains a RoPE run whose own curve is dynamic.
Expected: the same as pi with its automatic factor: without a fine-tune, worse than plain RoPE.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("dynamic_pi")
