"""LongRoPE, fine-tuned from a RoPE run at 4 times its length (Ding et al. 2024).

    python train.py --config=configs/longrope.py --workdir=runs/longrope --init_from=runs/rope

The original length is the parent's: up to it the short list serves, beyond it the long one. The
paper finds both lists by search. These were not searched: the long one has the frequencies of YaRN
for this length, factor and head size (the fastest pair kept, the slow ones divided by 4). Expected:
with these lists about as yarn after a fine-tune, and no better than rope without one; what a search
finds beyond that is the paper's gain.
"""

from ml_collections import ConfigDict

from configs import pi


def get_config() -> ConfigDict:
    c = pi.get_config()
    pairs = c.model.d_model // c.model.num_heads // 2
    ramp = ["1", "1.18", "1.43", "1.82", "2.5"]
    short, long = ["1"] * pairs, ramp + ["4"] * (pairs - len(ramp))
    c.position = f"longrope:factor=4,short_factor={'/'.join(short)},long_factor={'/'.join(long)}"
    return c
