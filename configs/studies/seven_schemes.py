"""The published picture on one small machine: seven position schemes, trained short and evaluated
long.

    python study.py --config=configs/studies/seven_schemes.py --workdir=runs/seven_schemes        (or: make demo)

Four trainings at 64 tokens (sinusoidal, learned, ALiBi, RoPE), and a short fine-tune of the RoPE
run under PI at 256, the recipe of PI's paper; then curves to 1024 tokens. PI, NTK, dynamic NTK and
YaRN read the RoPE run without retraining. Expected at 1024: ALiBi stays where it was at 64; of the
others YaRN rises least, then NTK and RoPE, then PI; sinusoidal fails at once, and learned is
undefined past 64.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.train = ""  # flags of every training, such as --config.train.steps=400
    c.runs = (
        {"name": "sinusoidal", "config": "configs/sinusoidal.py"},
        {"name": "learned", "config": "configs/learned.py"},
        {"name": "alibi", "config": "configs/alibi.py"},
        {"name": "rope", "config": "configs/rope.py"},
        {"name": "pi_tuned", "config": "configs/pi.py", "init_from": "rope"},
    )
    c.evaluate = (
        "--lengths=64,128,256,512,1024 --stride=4096 --diagnostics"  # flags of every evaluation
    )
    c.evaluations = (
        {"runs": "sinusoidal,learned,alibi"},
        {"runs": "rope", "schemes": "rope,pi,ntk,dynamic_ntk,yarn"},
        {"runs": "pi_tuned"},
    )
    return c
