"""Bad input: every config field and flag of the three commands, and strange corpora."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
from forks import ROOT, Done, Forks
from hypothesis import strategies as st
from runs import TINY, Outcome, environment, words

from configs import base

# Written once for each field and flag, whatever else is drawn.
SURE = ("", "0", "-1", "1e400", "x", str(10**12))
NAMES = (
    "a b", "a'b", 'a"b', "a/b", "..", "../x", "-x", "--x", "a\nb", "é日本😀", "\udcff", "*", "[a]", "a,b", "a=b",
    "a:b", "$HOME", "~", "~nobody/x", "%s{0}", "\\", "\t", " ", ".", "/dev/null", "/dev/null/x", "x" * 5000,
)  # fmt: skip
TYPED = ("nan", "inf", "-0.0", "1.5", "True", "None", "[]", "(1, 2)", "{}", "0x10", "1_0", "2", "7")
# What a config file may hold where a number or a text belongs.
OBJECTS = (
    "None", "[]", "{}", "(1, 2)", "set()", "b'x'", "object()", "float('nan')", "-1", "0", "10**30", "''", "True",
    "lambda: 1", "'x' * 10000", "1.5", "'\\n'", "'\\0'",
)  # fmt: skip
LIMIT = 10  # seconds of work for each input; on a busy machine the clock shows more


def drawn_values() -> st.SearchStrategy[str]:
    """Values as a shell may hand them over: any text without NUL, numbers of any size."""
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=20)
    numbers = st.one_of(st.integers(-(10**30), 10**30), st.floats()).map(str)
    return st.one_of(text, numbers, st.sampled_from(NAMES + TYPED))


def fields() -> list[str]:
    """Every field of configs/base.py, so that a new one is tried by itself."""
    config = base.get_config()
    inner = [f"{name}.{key}" for name in config for key in getattr(config[name], "keys", tuple)()]
    return [name for name in config if not hasattr(config[name], "keys")] + inner


def flags_of(script: str) -> list[str]:
    return re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', (ROOT / script).read_text())


def draws(strategy: st.SearchStrategy, count: int, seed: int) -> list:
    """Examples of a strategy; all are tried, so that one fault does not hide the next."""
    found: list = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def draw(value) -> None:
        found.append(value)

    draw()
    return found


class Inputs:
    """Starts of one command with one bad input each, in a folder of its own that must stay empty."""

    def __init__(self, folder: Path, script: str, given: Callable[[Path], dict[str, str]]):
        self.folder, self.script = folder, script
        self.work = folder / "a" / "b" / "c"  # where `..` and `../..` still are the harness's own
        env = environment(folder) | {"HOME": str(folder / "a" / "home")}
        self.forks = Forks(script.removesuffix(".py"), folder / "forks", env)
        self.given = given

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, *error) -> None:
        self.forks.__exit__(*error)

    def words(self, changes: dict[str, str], without: str = "no flag") -> list[str]:
        given = self.given(self.work).items()
        flags = {name: value for name, value in given if not name.startswith(without)} | changes
        return [f"--{name}={value}" for name, value in flags.items()]

    def tried(self, case: str, changes: dict[str, str], whole=False, without="no flag") -> Outcome:
        """`whole`: the command does its work too, and does not stop where it has refused nothing.
        `without`: how the flags begin that are not given."""
        shutil.rmtree(self.folder / "a", ignore_errors=True)
        for name in ("b/c", "home"):
            (self.folder / "a" / name).mkdir(parents=True)
        flags = self.words(changes, without)
        done = self.forks.run(flags, 6 * LIMIT, cwd=self.work, setup_only=not whole)
        left = sorted(str(p.relative_to(self.folder / "a")) for p in self.files())
        verdict, detail = self.judge(done, left)
        return Outcome(f"bad input to {self.script}", case[:120], verdict, detail)

    def files(self) -> list[Path]:
        return [path for path in (self.folder / "a").rglob("*") if not path.is_dir()]

    def judge(self, done: Done, left: list[str]) -> tuple[str, str]:
        said = done.err[-1500:]
        if done.timed_out or done.seconds > LIMIT:
            return "too slow", f"{done.seconds:.1f} s of work; {said}"
        if "Traceback" in done.err + done.out:
            return "traceback", said
        if done.status == 0:
            return "accepted", ""
        lines = [s for s in done.err.splitlines() if not s.startswith(("warning: ", "note: "))]
        if done.status < 0 or len(lines) != 1 or not lines[0].startswith(f"{self.script}: "):
            return "unclear", f"status {done.status}: {said}"
        if left:
            return "left a file", f"{left}: {said}"
        return "refused", lines[0]


def train_flags(cache: Path) -> Callable[[Path], dict[str, str]]:
    def given(work: Path) -> dict[str, str]:
        tiny = words(work / "run", cache, train__stop_at=1)
        return dict(word.removeprefix("--").split("=", 1) for word in tiny)

    return given


def train_inputs(folder: Path, share: float, count: int, seed: int) -> Iterator[Outcome]:
    """Every field and flag of train.py: some values always, and as many drawn ones."""
    cache = folder / "cache"
    names = [f"config.{name}" for name in fields()] + ["workdir", "init_from", "config"]
    sure = [(name, value) for name in names for value in SURE]
    strange = [(name, value) for name in ("workdir", "init_from", "config") for value in NAMES]
    some = st.tuples(st.sampled_from(names + ["config.no", "no"]), drawn_values())
    cases = thinned(sure + strange, share, seed) + draws(some, count, seed)
    with Inputs(folder, "train.py", train_flags(cache)) as inputs:
        assert inputs.tried("none", {}).verdict == "accepted"
        for name, value in cases:
            yield inputs.tried(f"--{name}={value!r}", {name: value})
        at = [(field, value) for field in fields() for value in OBJECTS]
        for field, value in thinned(at, share / 3, seed):
            config = folder / "strange.py"
            config.write_text(strange_config(field, value, cache))
            only = {"config": str(config)}
            yield inputs.tried(f"c.{field} = {value}", only, without="config.")


def strange_config(field: str, value: str, cache: Path) -> str:
    """A config file that puts any object into a field."""
    fields = TINY | {"data.cache_dir": str(cache)}
    tiny = "".join(f"        c.{name} = {given!r}\n" for name, given in fields.items())
    return (
        "from configs import smoke\n\n\ndef get_config():\n    c = smoke.get_config()\n"
        f"    with c.ignore_type():\n{tiny}        c.{field} = {value}\n    return c\n"
    )


def thinned(cases: list, share: float, seed: int) -> list:
    """That share of the cases, evenly; another one with another seed."""
    step = max(round(1 / share), 1)
    return cases[seed % step :: step]


def evaluation_inputs(folder: Path, run: Path, share: float, count: int, seed: int):
    """Every flag of eval_extrapolation.py, over a run that is there."""
    names = flags_of("eval_extrapolation.py")
    cases = thinned([(n, v) for n in names for v in SURE + NAMES], share, seed)
    cases += draws(st.tuples(st.sampled_from(names), drawn_values()), count, seed)

    def given(work: Path) -> dict[str, str]:
        return {"runs": str(run), "out": str(work / "report"), "lengths": "16,32", "targets": "8"}

    with Inputs(folder, "eval_extrapolation.py", given) as inputs:
        assert inputs.tried("none", {}).verdict == "accepted"
        for name, value in cases:
            yield inputs.tried(f"--{name}={value!r}", {name: value})


STUDY_FIELDS = ("train", "evaluate", "runs", "evaluations")
RUNS = ("({'name': 'a'},)", "({},)", "(1,)", "({'name': 'a', 'config': 'no.py'},)",
    "({'name': '../x', 'config': 'configs/smoke.py'},)", "({'name': '', 'config': 'configs/smoke.py'},)",
    "({'name': 'a', 'config': 'configs/smoke.py', 'flags': '\\''},)", "({'runs': 'b'},)", "({'runs': ''},)",
    "({'name': 1, 'config': 2},)",
)  # fmt: skip


def study_inputs(folder: Path, share: float, seed: int) -> Iterator[Outcome]:
    """Every field of a study, and its flags; nothing of it is run."""
    file = folder / "strange_study.py"
    given = {"config": f"{ROOT}/configs/studies/smoke.py", "print_commands": "true"}
    with Inputs(folder, "study.py", lambda work: given | {"workdir": str(work / "s")}) as inputs:
        assert inputs.tried("none", {}).verdict == "accepted"
        for name, value in thinned(
            [(n, v) for n in flags_of("study.py") + ["config"] for v in SURE + NAMES], share, seed
        ):
            yield inputs.tried(f"--{name}={value!r}", {name: value})
        for field, value in thinned(
            [(f, v) for f in STUDY_FIELDS for v in OBJECTS + RUNS], share, seed
        ):
            file.write_text(
                "from configs.studies import smoke\n\n\ndef get_config():\n    c = smoke.get_config()\n"
                f"    with c.ignore_type():\n        c.{field} = {value}\n    return c\n"
            )
            yield inputs.tried(f"c.{field} = {value}", {"config": str(file)})


def corpora(folder: Path, share: float) -> Iterator[Outcome]:
    """Texts that are no ordinary ones: a line says what is wrong, or a step is trained."""
    texts = folder / "texts"
    shutil.rmtree(texts, ignore_errors=True)
    many = {f"{n:05d}.txt": b"ab" for n in range(10_000)}
    made = {
        "no file": {},
        "one empty file": {"a.txt": b""},
        "one byte": {"a.txt": b"a"},
        "one endless line": {"a.txt": b"abcdefg " * 600_000},
        "10,000 tiny documents": many,
        "10,000 rows": {"a.jsonl": b'{"text": "a few words of text"}\n' * 10_000},
        "empty rows": {"a.jsonl": b'{"text": ""}\n' * 100},
        "rows without text": {"a.jsonl": b'{"words": "a"}\n' * 100},
        "half a row": {"a.jsonl": b'{"text": "abc"}\n{"text": "ab'},
        "no UTF-8": {"a.txt": bytes(range(128, 256)) * 500, "b.txt": b"\xff" * 5000, "c.txt": b"z" * 5000},
        "empty gzip": {"a.txt.gz": b""},
        "half a gzip": {"a.txt.gz": b"\x1f\x8b\x08\x00"},
        "no parquet": {"a.parquet": b"PAR1"},
        "strange names": {"a b\n'é.txt": b"abc " * 3000, "[x].txt": b"abd " * 3000, "-.txt": b"c" * 9000},
    }  # fmt: skip
    with Inputs(folder, "train.py", train_flags(folder / "cache")) as inputs:
        inputs.tried("none", {}, whole=True)  # compiles
        for tokenizer in ("byte", "bpe:300"):
            for case, content in made.items() if share == 1 else list(made.items())[:5]:
                place = texts / case
                place.mkdir(parents=True, exist_ok=True)
                for name, text in content.items():
                    (place / name).write_bytes(text)
                changes = {"config.data.source": f"files:{place}"}
                changes |= {"config.data.tokenizer": tokenizer}
                outcome = inputs.tried(f"{case}, {tokenizer}", changes, whole=True)
                outcome.fault = "strange corpus"
                yield outcome
