"""The states of the page's sliders, each computed by the schemes and packed as numbers into the page."""

import base64

import numpy as np

import posenc
from posenc.gallery import biases, permutation, rotary

SLIDERS = {
    "position": tuple(range(65)),  # tokens
    "length": (1, 2, 4, 8, 16, 32),  # training lengths
    "factor": (1, 2, 4, 8, 16, 32),
    "base": (100, 1000, 10_000, 100_000, 500_000, 1_000_000),
}
WIDTH = 64  # of the sinusoid table
POINTS = 64  # rows and columns of a bias matrix, at most
PAIRINGS = ("interleaved", "half")
MISSING = -(2**15)


def arrays(schemes: dict[str, posenc.Scheme]) -> dict[str, np.ndarray]:
    """Every number the page draws, by name; axes in the order of the names of the sliders.

    `schemes` are the bias schemes to show.
    """
    found = {**turning(), **bent()}
    found["permutation"] = np.stack([permutation.shuffled_outputs(n) for n in permutation.DRAWN])
    for name, scheme in schemes.items():
        L = scheme.dims.train_length
        lengths = [L * multiple for multiple in SLIDERS["length"]]
        found[f"bias {name}"] = np.stack(
            [biases.bias_matrix(scheme, n, points(scheme)) for n in lengths]
        )
    return found


def turning() -> dict[str, np.ndarray]:
    """What moves with position: the sinusoid table [base, position, channel]; where queries stand
    [base, position, pair, 2]; inner products [scheme, base, position of the key, distance]; the
    matrices [pairing, base, position, K, K].
    """
    positions = np.array(SLIDERS["position"])
    bases = SLIDERS["base"]
    few = [posenc.create("rope", rotary.FEW, base=base) for base in bases]
    turned = np.stack([rotary.phasors(scheme, positions) for scheme in few])
    return {
        "sinusoid": np.stack([rotary.sinusoid_table(WIDTH, positions, b) for b in bases]),
        "rotation": np.stack([turned.real, turned.imag], axis=-1),
        "product": np.stack([products(name) for name in ("rope", "sinusoidal")]),
        "matrix": np.stack([matrices(pairing) for pairing in PAIRINGS]),
    }


def products(name: str) -> np.ndarray:
    """q·k for each base, position of the key and distance up to 64, [base, position, distance]."""
    positions = np.array(SLIDERS["position"])
    k_pos = np.repeat(positions, len(positions))
    q_pos = k_pos + np.tile(positions, len(positions))
    pair = rotary.random_pair(rotary.HEAD)
    rows = [
        rotary.inner_products(posenc.create(name, rotary.HEAD, base=b), *pair, q_pos, k_pos)
        for b in SLIDERS["base"]
    ]
    return np.stack(rows).reshape(-1, len(positions), len(positions))


def matrices(pairing: str) -> np.ndarray:
    """RoPE's matrix for each base and position, [base, position, K, K]."""
    positions = np.array(SLIDERS["position"])
    schemes = [posenc.create("rope", rotary.FEW, base=b, pairing=pairing) for b in SLIDERS["base"]]
    return np.stack([rotary.rotation_matrices(scheme, positions) for scheme in schemes])


def bent() -> dict[str, np.ndarray]:
    """Wavelengths (log10 of tokens), angles seen and q·k of the RoPE family by base and factor:
    [base, factor, scheme, pair or distance], the angles [base, factor, length, scheme, pair].
    """
    L = rotary.ROTARY.train_length
    far = rotary.far_distances(60, 12)
    found: dict[str, list] = {"wavelength": [], "seen": [], "decay": []}
    for base in SLIDERS["base"]:
        for factor in SLIDERS["factor"]:
            made = rotary.family(rotary.ROTARY, base, factor, factor * L).values()
            found["wavelength"].append([np.log10(rotary.wavelengths(s)) for s in made])
            found["decay"].append([rotary.smoothed_product(s, far) for s in made])
            found["seen"].append(
                [
                    [rotary.seen_angles(s.at_length(n * L), n * L) for s in made]
                    for n in SLIDERS["length"]
                ]
            )
    grid = (len(SLIDERS["base"]), len(SLIDERS["factor"]))
    return {name: np.array(v).reshape(*grid, *np.shape(v)[1:]) for name, v in found.items()}


def points(scheme: posenc.Scheme) -> int:
    """Rows and columns of this scheme's bias matrices."""
    return min(POINTS, scheme.dims.train_length)


def pack(array: np.ndarray) -> dict:
    """Numbers as int16 multiples of a step, base64 of little-endian bytes; NaN as MISSING.

    Off by at most half a step, which is 1/65,534 of the largest magnitude.
    """
    whole = np.issubdtype(array.dtype, np.integer)
    step = 1.0 if whole else float(f"{np.nanmax(np.abs(array)) / 32767:.6g}") * 1.00001
    steps = np.where(np.isnan(array), MISSING, np.round(array / step)).astype("<i2")
    data = base64.b64encode(steps.tobytes()).decode("ascii")
    return {"shape": list(array.shape), "step": step, "data": data}


def unpack(packed: dict) -> np.ndarray:
    """The numbers as the page reads them, float64."""
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(packed["shape"])
    return np.where(steps == MISSING, np.nan, steps * packed["step"])
