"""YaRN, the recipe of its paper: a RoPE run fine-tuned at 4 times its length (Peng et al. 2023).

    python train.py --config=configs/yarn.py --workdir=runs/yarn --init_from=runs/rope

The factor is the ratio of the two lengths and is fixed; the original length is taken from the
parent. Expected: at 4 training lengths a loss within 0.02 nats of RoPE's at one, and below that of
PI after the same steps.
"""

from ml_collections import ConfigDict

from configs import pi


def get_config() -> ConfigDict:
    c = pi.get_config()
    c.position = "yarn:factor=4"
    return c
