"""The other side of evaluation_speed.py: transformers' Llama, under each scheme as its configuration spells it.

For each line "SCHEME LENGTH TRAIN_LENGTH ROWS TARGETS" it scores FOLDER/windows.npy, stores the losses of
the last targets in FOLDER/nll.npy and writes the seconds that took.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
import transformers

BASE = 10000.0


def rotary(scheme: str, factor: float, L: int, K: int) -> dict:
    """`rope_parameters` of a scheme extended by a factor."""
    plain = {"rope_type": "default", "rope_theta": BASE}
    if scheme == "pi":
        return {**plain, "rope_type": "linear", "factor": factor}
    if scheme == "ntk":
        return {**plain, "rope_theta": BASE * factor ** (K / (K - 2))}
    if scheme == "yarn":
        original = {"original_max_position_embeddings": L}
        return {**plain, "rope_type": "yarn", "factor": factor, **original}
    return plain


def main() -> None:
    folder = Path(sys.argv[1])
    weights = {k: torch.from_numpy(v.copy()) for k, v in np.load(folder / "weights.npz").items()}
    vocabulary, D = weights["lm_head.weight"].shape
    layers = 1 + max(int(k.split(".")[2]) for k in weights if k.startswith("model.layers."))
    for line in sys.stdin:
        scheme, *numbers = line.split()
        length, L, rows, targets = map(int, numbers)
        config = transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=D,
            intermediate_size=len(weights["model.layers.0.mlp.gate_proj.weight"]),
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=length,
            rms_norm_eps=1e-6,
            tie_word_embeddings=False,
            use_cache=False,
            rope_parameters=rotary(scheme, length / L, L, D // 4),
        )
        model = transformers.LlamaForCausalLM(config).eval()
        model.load_state_dict(weights, strict=True)
        windows = torch.from_numpy(np.load(folder / "windows.npy").astype(np.int64))
        began = time.perf_counter()
        losses = []
        with torch.inference_mode():
            for chunk in windows.split(rows):
                logits = model(input_ids=chunk[:, :-1], logits_to_keep=targets).logits
                wanted = chunk[:, -targets:]
                losses.append(
                    torch.nn.functional.cross_entropy(
                        logits.transpose(1, 2), wanted, reduction="none"
                    )
                )
        seconds = time.perf_counter() - began
        np.save(folder / "nll.npy", torch.cat(losses).numpy())
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
