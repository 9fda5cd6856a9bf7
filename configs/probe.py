"""A small model that learns one task, to see how far past its training length it still answers.

    python train.py --config=configs/probe.py:passkey --workdir=runs/passkey --config.position=alibi
    python eval_extrapolation.py --runs=runs/passkey --protocols=probe:passkey --out=runs/passkey/report

The length is written twice: data.source makes examples of up to that many tokens, one for each
training window of train.length. To change it, change both.
"""

from ml_collections import ConfigDict

from configs import base

LENGTH = {
    "addition": 16
}  # two numbers of up to four digits: of nine, nothing is learned in minutes
OTHERS = 32


def get_config(task="passkey") -> ConfigDict:
    """`task`: passkey, recall, copy, reverse, sort or addition."""
    length = LENGTH.get(task, OTHERS)
    c = base.get_config("rope")
    c.model.num_layers = 2
    c.model.d_model = 64
    c.model.num_heads = 4
    c.model.d_ff = 172
    c.data.source = f"synthetic:{task}:{length}"
    c.train.steps = 1500
    c.train.batch_size = 2048 // length
    c.train.length = length
    c.train.log_every = 100
    c.train.eval_every = 0
    c.train.save_every = 0
    return c
