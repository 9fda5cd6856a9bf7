"""What the three commands share: reading their flags, where compiled programs are kept, streams that
may fail, and reporting a user's mistake in one line."""

import contextlib
import errno
import hashlib
import logging
import os
import platform
import re
import signal
import sys
import tempfile
import threading
import warnings

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from configs import streams


def define_config(example: str = "configs/rope.py") -> flags.FlagHolder:
    """The flag --config=FILE with --config.key=value overrides; unknown keys are refused."""
    return config_flags.DEFINE_config_file(
        "config", None, f"config file, such as {example}", lock_config=True
    )


# Programs compiled once are loaded by later commands. JAX_COMPILATION_CACHE_DIR names another
# folder, JAX_ENABLE_COMPILATION_CACHE=false does without.
COMPILED = "~/.cache/lengthwise/compiled"


def compiled_folder() -> str:
    """The folder of programs for processors like this one.

    JAX's own key lacks the processor's instructions and the number of cores, on which the order of
    sums depends; and hosts of several kinds may share a home.
    """
    processor = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        lines = (line for line in file if line.lower().startswith(("flags", "features")))
        processor = next(lines, processor)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kind = hashlib.sha256(f"{processor} {cores}".encode()).hexdigest()[:8]
    folder = os.path.expanduser(COMPILED)
    if not os.path.isabs(folder):  # a user without a home
        folder = os.path.join(tempfile.gettempdir(), f"lengthwise-{os.getuid()}", "compiled")
    return os.path.join(folder, f"{platform.machine()}-{kind}")


TRACEBACK = "LENGTHWISE_TRACEBACK"


def run(main) -> None:
    """Parse the command line, call `main()`, and exit with its status."""
    streams.protect()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    # In the environment, for jax is not imported yet, and study.py's commands are to find it too.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", compiled_folder())
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # small ones add up
    app.define_help_flags()
    # Orbax tells of its every step, and of a failure in every thread; what fails is raised too.
    absl_logging.set_verbosity(absl_logging.FATAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.formatwarning = lambda message, *where, **more: f"warning: {message}\n"
    sys.unraisablehook = unraisable
    with reporting():
        for word in sys.argv[1:]:  # ml_collections says this at length, and late
            file = word.partition("=")[2].partition(":")[0]
            if word.startswith("--config=") and not os.path.isfile(file):
                raise ValueError(f"--config={file}: there is no such file")
            if word.startswith("--config=") and not file.endswith(".py"):
                raise ValueError(f"--config={file} is no Python file, such as configs/rope.py")
            name = word.partition("=")[0]
            if name.startswith("--config.") and "" in name.split("."):
                raise ValueError(f"{word}: {name} names no field; write --config.train.steps=…")
        try:
            rest = flags.FLAGS(sys.argv)
        except Exception as error:  # a config file is a program, and may fail in any way
            raise ValueError(flag_mistake(error)) from error
        if len(rest) > 1:
            raise ValueError(f"unexpected argument {rest[1]!r}: options are written --name=value")
    try:
        status = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    lost = streams.failure()
    if lost and lost.errno != errno.EPIPE:  # `| head` has read enough
        name = os.path.basename(sys.argv[0])
        print(f"{name}: not all that was printed arrived ({lost.strerror})", file=sys.stderr)
    sys.exit(status)


def end_at_once(number, frame) -> None:
    """What Ctrl-C does until there is something to save. An exception would not do: raised while modules are
    imported or inside a callback it is printed with a traceback, or lost."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def unraisable(error) -> None:
    """Python's own report, but for threads of tensorstore: what fails there is raised elsewhere too."""
    if threading.current_thread() is threading.main_thread() or os.environ.get(TRACEBACK):
        sys.__unraisablehook__(error)


def require(**given) -> None:
    """Refuse a command line that lacks one of these flags."""
    for name, value in given.items():
        if not value:
            raise ValueError(f"--{name}=… is missing; --help shows the usage")


def config_fields() -> list[str]:
    """The fields of the command's config as flags, "config.train.steps", but for those named like a
    section of it; none where there is no config."""
    config = flags.FLAGS["config"].value if "config" in flags.FLAGS else None
    if config is None:
        return []
    parts = {name: part for name, part in config.items() if hasattr(part, "keys")}
    inner = [
        f"config.{name}.{field}"
        for name, part in parts.items()
        for field in part
        if field not in parts
    ]
    return [f"config.{name}" for name in config if name not in parts] + inner


def flag_mistake(error: Exception) -> str:
    """One line for what absl, ml_collections or a config file said."""
    text = str(error.args[0] if error.args else error)
    below = re.search(r"Attempting to lookup: ([\w.]+\w)", text)
    if below:
        field = below[1].rpartition(".")[0]
        return f"the config has no field {below[1]}: {field} is a value, not a section"
    if isinstance(error, KeyError) or (
        isinstance(error, AttributeError) and "Did you mean" in text
    ):
        name, _, hint = text.strip("'\"").replace("\\n", "\n").partition("\n")
        name = name.replace("\\", "").strip("'")
        return f"the config has no field {name}. {hint}".strip()
    if isinstance(error, flags.IllegalFlagValueError):
        return value_mistake(text)
    if isinstance(error, flags.UnrecognizedFlagError):
        name, last = error.flagname, error.flagname.rpartition(".")[2]
        meant = [field for field in config_fields() if field.rpartition(".")[2] == last]
        if meant:
            return f"unknown flag --{name}; did you mean --{meant[0]}=…?"
        if name.startswith("config.") and "config" in flags.FLAGS:
            return f"--{name} changes a config file: give --config=FILE first"
    if isinstance(error, flags.Error):
        cause = error.__cause__ or error.__context__
        text = " ".join(text.split())
        return f"{text} {cause}" if text.endswith(":") and cause else text
    return f"--config cannot be read: {type(error).__name__}: {' '.join(text.split())}"


KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def value_mistake(text: str) -> str:
    """One line for a value that does not fit its flag; absl's text begins with "flag --NAME=VALUE: "."""
    words = zip(sys.argv[1:], [*sys.argv[2:], ""], strict=True)  # --name=value or --name value
    pairs = [(*word.lstrip("-").partition("="), after) for word, after in words]
    pairs = [(name, value if equals else after) for name, equals, value, after in pairs]
    given = (pair for pair in pairs if text.startswith("flag --{}={}: ".format(*pair)))
    name, value = next(given, ("", ""))
    kind = flags.FLAGS[name].flag_type() if name in flags.FLAGS else ""
    if kind in KINDS:
        least = getattr(flags.FLAGS[name].parser, "lower_bound", None)
        bound = "" if least is None else f", at least {least}"
        return f"--{name}={value!r} must be {KINDS[kind]}{bound}"
    inner = [field for field in config_fields() if field.startswith(f"{name}.")]
    return f"--{name} is a section; write --{inner[0]}=…" if inner else text


@contextlib.contextmanager
def reporting(mistakes: tuple[type[Exception], ...] = (ValueError, OSError)):
    """Turn a mistake found while setting up, an error of these kinds, into one line and exit status 2.

    LENGTHWISE_TRACEBACK=1 shows where it was raised.
    """
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except mistakes as error:
        if os.environ.get(TRACEBACK):
            raise
        name = os.path.basename(sys.argv[0])
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except (MemoryError, RuntimeError) as error:  # jax's own are RuntimeErrors
        exhausted = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
        if not exhausted or os.environ.get(TRACEBACK):
            raise
        name = os.path.basename(sys.argv[0])
        text = " ".join(str(error).split())
        print(f"{name}: not enough memory for these sizes: {text}", file=sys.stderr)
        raise SystemExit(2) from None
