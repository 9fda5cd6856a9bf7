"""Two runs that are ready in seconds, to see that a study works from end to end.

python study.py --config=configs/studies/smoke.py --workdir=runs/smoke_study
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.train = ""
    c.runs = (
        {"name": "rope", "config": "configs/smoke.py"},
        {"name": "alibi", "config": "configs/smoke.py", "flags": "--config.position=alibi"},
    )
    c.evaluate = "--lengths=32,64,128 --stride=16384 --diagnostics"
    c.evaluations = (
        {"runs": "rope", "schemes": "rope,yarn"},
        {"runs": "alibi"},
    )
    return c
