"""NTK by parts, fine-tuned from a RoPE run at 4 times its length (Peng et al. 2023, eq. 17-20).

    python train.py --config=configs/ntk_by_parts.py --workdir=runs/by_parts --init_from=runs/rope

The factor is the ratio of the two lengths and is fixed; the original length is the parent's.
Expected: above yarn, which adds a temperature to it; usable without any fine-tune
(`--schemes=ntk_by_parts` on the RoPE run) and better with one.
"""

from ml_collections import ConfigDict

from configs import pi


def get_config() -> ConfigDict:
    c = pi.get_config()
    c.position = "ntk_by_parts:factor=4"
    return c
