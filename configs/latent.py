"""Multi-head latent attention, its positions on channels of their own (DeepSeek-V2, 2024).

    python train.py --config=configs/latent.py --workdir=runs/latent

A token's cache holds 64 numbers per layer, where softmax attention of these sizes holds 256.
Expected: nearly the loss of rope at the training length, rising past it more steeply.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config("rope")
    c.model.attention = "latent"
    c.model.latent_size = 48
    c.model.rope_size = 16
    return c
