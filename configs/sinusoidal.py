"""Sinusoidal positions added to the embeddings (Vaswani et al. 2017, section 3.5).

    python train.py --config=configs/sinusoidal.py --workdir=runs/sinusoidal

Expected: fails within a few tokens past the training length, as Press et al. 2022, figure 1, found.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("sinusoidal")
