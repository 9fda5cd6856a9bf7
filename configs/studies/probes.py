"""What a loss per token hides: whether a model still finds, copies and computes past its training length.

    python study.py --config=configs/studies/probes.py --workdir=runs/probes

Small models, one for each task and scheme, trained on examples of up to 32 tokens (addition: 16) and asked for
the answers of examples of up to 256. See docs/probes.md.
"""

from ml_collections import ConfigDict

TASKS = ("passkey", "recall", "copy", "reverse", "sort", "addition")
SCHEMES = ("nope", "rope", "alibi", "t5")


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.train = ""  # flags of every training, such as --config.train.steps=400
    c.runs = tuple(
        {
            "name": f"{task}_{scheme}",
            "config": f"configs/probe.py:{task}",
            "flags": f"--config.position={scheme}",
        }
        for task in TASKS
        for scheme in SCHEMES
    )
    c.evaluate = "--lengths=16,24,32,64,128,256"  # flags of every evaluation
    c.evaluations = tuple(
        {
            "runs": ",".join(f"{task}_{scheme}" for scheme in SCHEMES),
            "flags": f"--protocols=probe:{task}",
        }
        for task in TASKS
    )
    return c
