"""Dynamic NTK: the base follows the length at hand (emozilla 2023; Hugging Face `dynamic`).

    python train.py --config=configs/dynamic_ntk.py --workdir=runs/dynamic_ntk

At the training length it is plain RoPE, so this trains a RoPE run whose own curve is the dynamic
one. Expected: close to ntk with its automatic factor, without any fine-tune.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("dynamic_ntk")
