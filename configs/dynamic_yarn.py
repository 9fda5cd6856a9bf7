"""Dynamic YaRN: YaRN by the length at hand (Peng et al. 2023, section 3.4).

    python train.py --config=configs/dynamic_yarn.py --workdir=runs/dynamic_yarn

At the training length it is plain RoPE, so this trains a RoPE run whose own curve is dynamic.
Expected: without any fine-tune the least rise past the training length among the RoPE family.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("dynamic_yarn")
