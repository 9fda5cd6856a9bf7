"""RoPE and everything that changes its frequencies, its pairing or its temperature.

The logit is written in its relative form, Re(Q · conj(K) · e^{i(p−p')θ}) for each pair read as a
complex number: nothing is rotated by an absolute position here.
"""

import math

import numpy as np

from .setting import Setting, masked

Array = np.ndarray


def rotated(s: Setting) -> int:
    return round(s.K * float(s.option("rotary_fraction", 1.0)))


def original(s: Setting) -> int:
    return s.option("original_length", s.L)


def stretch(s: Setting) -> float:
    """The extension factor: the number given, or evaluated length over original length."""
    factor = s.option("factor", "auto")
    return max(1.0, s.length / original(s)) if factor == "auto" else float(factor)


def plain(s: Setting, base: float | None = None) -> list[float]:
    base = float(s.option("base", 10000.0)) if base is None else base
    return [base ** (-2.0 * t / rotated(s)) for t in range(rotated(s) // 2)]


def rope(s: Setting) -> list[float]:
    return plain(s)


def pi(s: Setting) -> list[float]:
    return [theta / stretch(s) for theta in plain(s)]


def ntk(s: Setting) -> list[float]:
    d = rotated(s)
    return plain(s, float(s.option("base", 10000.0)) * stretch(s) ** (d / (d - 2)))


def dynamic_ntk(s: Setting) -> list[float]:
    d, f = rotated(s), float(s.option("factor", 1.0))
    ratio = max(s.length, original(s)) / original(s)
    return plain(s, float(s.option("base", 10000.0)) * (f * ratio - (f - 1.0)) ** (d / (d - 2)))


def dynamic_pi(s: Setting) -> list[float]:
    return [theta * original(s) / max(s.length, original(s)) for theta in plain(s)]


def by_parts(s: Setting, factor: float, slow: float, fast: float) -> list[float]:
    """Linear in r, the turns a pair makes within the original length (YaRN paper, Eq. 17-20)."""
    out = []
    for theta in plain(s):
        r = original(s) * theta / (2.0 * math.pi)
        gamma = 0.0 if r < slow else 1.0 if r > fast else (r - slow) / (fast - slow)
        out.append((1.0 - gamma) * theta / factor + gamma * theta)
    return out


def ntk_by_parts(s: Setting) -> list[float]:
    return by_parts(s, stretch(s), s.option("beta_slow", 1.0), s.option("beta_fast", 32.0))


def llama3(s: Setting) -> list[float]:
    """Stated with wavelengths, as in the released code."""
    low, high = s.option("low_freq_factor", 1.0), s.option("high_freq_factor", 4.0)
    L, factor, out = original(s), stretch(s), []
    for theta in plain(s):
        wavelength = 2.0 * math.pi / theta
        if wavelength > L / low:
            out.append(theta / factor)
        elif wavelength < L / high:
            out.append(theta)
        else:
            m = (L / wavelength - low) / (high - low)
            out.append((1.0 - m) * theta / factor + m * theta)
    return out


def yarn_bounds(d: int, base: float, L: float, fast: float, slow: float) -> tuple[float, float]:
    """The pair indices that make `fast` and `slow` turns within L tokens, as real numbers."""

    def index(turns: float) -> float:
        return d * math.log(L / (2.0 * math.pi * turns)) / (2.0 * math.log(base))

    return index(fast), index(slow)


def yarn_at(s: Setting, factor: float) -> list[float]:
    fast, slow = s.option("beta_fast", 32.0), s.option("beta_slow", 1.0)
    if factor <= 1.0:
        return plain(s)
    if s.option("ramp", "index") == "wavelength":
        return by_parts(s, factor, slow, fast)
    d = rotated(s)
    low, high = yarn_bounds(d, float(s.option("base", 10000.0)), original(s), fast, slow)
    if s.option("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    if low == high:
        high += 0.001
    out = []
    for t, theta in enumerate(plain(s)):
        ramp = min(max((t - low) / (high - low), 0.0), 1.0)
        out.append(theta / factor * ramp + theta * (1.0 - ramp))
    return out


def yarn(s: Setting) -> list[float]:
    return yarn_at(s, stretch(s))


def dynamic_yarn(s: Setting) -> list[float]:
    return yarn_at(s, max(1.0, s.length / original(s)))


def longrope(s: Setting) -> list[float]:
    rho = s.option("long_factor" if s.length > original(s) else "short_factor", None)
    return [theta / rho[t] for t, theta in enumerate(plain(s))]


def p_rope(s: Setting) -> list[float]:
    turning = math.floor(float(s.option("p", 0.25)) * s.K / 2)
    return [theta if t < turning else 0.0 for t, theta in enumerate(plain(s))]


def temperature(name: str, s: Setting) -> float:
    """What cosines and sines are both multiplied by; the logits get its square."""
    if s.option("attention_factor", None) is not None:
        return float(s.option("attention_factor", None))
    if name in ("yarn", "dynamic_yarn"):
        factor = stretch(s) if name == "yarn" else max(1.0, s.length / original(s))
        return 1.0 if factor <= 1.0 else 0.1 * math.log(factor) + 1.0
    if name == "longrope":
        factor = stretch(s)
        return 1.0 if factor <= 1.0 else math.sqrt(1.0 + math.log(factor) / math.log(original(s)))
    return 1.0


FREQUENCIES = {
    "rope": rope,
    "pi": pi,
    "ntk": ntk,
    "dynamic_ntk": dynamic_ntk,
    "dynamic_pi": dynamic_pi,
    "ntk_by_parts": ntk_by_parts,
    "yarn": yarn,
    "dynamic_yarn": dynamic_yarn,
    "llama3": llama3,
    "longrope": longrope,
    "p_rope": p_rope,
    "xpos": rope,
}


def decay(name: str, s: Setting, t: int, distance: float) -> float:
    """xPos: ζ_t^(distance / scale_base); one for every other scheme."""
    if name != "xpos":
        return 1.0
    gamma, d = float(s.option("gamma", 0.4)), rotated(s)
    zeta = (2.0 * t + gamma * d) / ((1.0 + gamma) * d)
    return zeta ** (distance / float(s.option("scale_base", 512)))


def rotary_logits(name: str, s: Setting, q: Array, k: Array, q_pos: Array, k_pos: Array) -> Array:
    """Masked logits [H, T, S] of one scheme; channels that are not rotated have no temperature."""
    d, frequencies = rotated(s), FREQUENCIES[name](s)
    heat = temperature(name, s) ** 2
    interleaved = s.option("pairing", "half") == "interleaved"

    def logit(h: int, i: int, j: int) -> float:
        distance, total = float(q_pos[i]) - float(k_pos[j]), 0.0
        for t, theta in enumerate(frequencies):
            a, b = (2 * t, 2 * t + 1) if interleaved else (t, t + d // 2)
            Q, C = complex(q[i, h, a], q[i, h, b]), complex(k[j, h, a], k[j, h, b])
            turn = complex(math.cos(distance * theta), math.sin(distance * theta))
            total += heat * decay(name, s, t, distance) * (Q * C.conjugate() * turn).real
        total += float(q[i, h, d:] @ k[j, h, d:])
        return total / math.sqrt(s.K)

    return masked(s.H, q_pos, k_pos, logit)
