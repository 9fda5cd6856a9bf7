"""Linear attention with rotary positions (Katharopoulos et al. 2020; Su et al. 2021, eq. 19).

    python train.py --config=configs/linear.py --workdir=runs/linear

What decoding keeps does not grow with the text. Expected: a loss above rope's at the training
length, and a smaller rise past it.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config("rope")
    c.model.attention = "linear"
    return c
