"""NTK-aware scaling, fine-tuned from a RoPE run at 4 times its length (bloc97 2023; the YaRN
paper's eq. 16).

    python train.py --config=configs/ntk.py --workdir=runs/ntk --init_from=runs/rope

Expected: usable without any fine-tune (`--schemes=ntk` on the RoPE run) and better with one.
"""

from ml_collections import ConfigDict

from configs import pi


def get_config() -> ConfigDict:
    c = pi.get_config()
    c.position = "ntk:factor=4"
    return c
