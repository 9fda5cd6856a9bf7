"""FIRE: a small network of the distance relative to the query's position (Li et al. 2024).

    python train.py --config=configs/fire.py --workdir=runs/fire

Expected: at the training length among the best of the biases; flat past it in its paper, as its
input stays within the range seen in training. At the demo's size it rises, less than T5.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("fire")
