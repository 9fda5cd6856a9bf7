"""Sandwich: inner products of sinusoidal vectors as a bias, no parameters (Chi et al. 2023).

    python train.py --config=configs/sandwich.py --workdir=runs/sandwich

Expected: flat far past the training length, below ALiBi and KERPLE at the demo's size.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("sandwich")
