"""Make, or repair, the environment that every command of the course runs in.

One folder for each Python version: .venv/3.11, .venv/3.12, ... A stamp inside it is written last, so an environment
that was interrupted, or made from other pins, has no valid stamp and is made anew.

Only the standard library, and only syntax that an old Python 3 can read: this file has to run before anything is
installed, and has to say so when the Python is too old.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any  # noqa: F401  (used in a comment, for the same reason)

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
PINS = ROOT / "constraints.txt"
# Settings of the caller that would send packages elsewhere than into the new environment.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV")
NETWORK = re.compile(
    "NewConnectionError|NameResolutionError|Temporary failure in name resolution|Name or service not known"
    "|Network is unreachable|Connection refused|ConnectTimeout|ReadTimeout|Read timed out|ProxyError"
)


class Trouble(Exception):
    """Something the reader has to do; its text is the one line that is shown."""


def folder():
    # type: () -> Path
    """Return the folder of the environment of the running Python version."""
    return ROOT / ".venv" / "{}.{}".format(*sys.version_info[:2])


def python(env):
    # type: (Path) -> Path
    """Return the interpreter of an environment."""
    return env / "bin" / "python"


def fingerprint():
    # type: () -> dict[str, str]
    """Return what an environment depends on: the interpreter, its place, the pins, the package's metadata."""
    digest = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (PINS, ROOT / "pyproject.toml")}
    return dict(digest, python=sys.version, base=sys.base_prefix, place=str(folder()))


def stamped(env):
    # type: (Path) -> dict[str, str]
    """Return the stamp of a finished environment, or an empty one."""
    try:
        stamp = json.loads((env / "ready.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and python(env).exists() else {}


def check_python():
    # type: () -> None
    """Refuse a Python that cannot hold the environment."""
    if sys.version_info[:2] < OLDEST:
        raise Trouble(
            "Python {}.{} is too old: the course needs {}.{} or newer. "
            "Install one and name it: make book PYTHON=python3.13".format(*(sys.version_info[:2] + OLDEST))
        )
    try:
        import ensurepip  # noqa: F401  (Debian ships it in a package of its own)
        import venv  # noqa: F401
    except ImportError:
        raise Trouble(
            "This Python cannot make environments (no ensurepip). On Debian and Ubuntu: sudo apt install python3-venv"
        ) from None


def run(command, log, describe):
    # type: (list[str], Path, object) -> None
    """Run a command, keep all it prints in a log, and show the lines that `describe` makes of it."""
    environ = {k: v for k, v in os.environ.items() if k not in FOREIGN}
    with log.open("a", encoding="utf-8") as out:
        out.write("$ " + " ".join(command) + "\n")
        # The child inherits the lock: if this command is killed, the next one waits until the child has ended too.
        share = {"close_fds": False, "cwd": str(ROOT), "env": environ}  # type: Any
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "universal_newlines": True}  # type: Any
        process = subprocess.Popen(command, **share, **output)
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            describe(line)  # type: ignore[operator]
        if process.wait() != 0:
            raise subprocess.CalledProcessError(process.returncode, command)


class Progress:
    """Turns the many lines of pip into a few, and breaks a long silence."""

    PATIENCE = 30  # seconds

    def __init__(self, total):
        # type: (int) -> None
        self.total, self.seen, self.start, self.told = total, 0, time.time(), time.time()
        self.doing = "preparing"

    def __call__(self, line):
        # type: (str) -> None
        if line.startswith(("Collecting ", "Processing ")):
            self.seen += 1
            self.doing = "fetching " + re.split(r"[=<>~ ]", line.split(" ", 1)[1].strip())[0]
            if self.seen % 20 == 0:
                self.say("{} of about {} packages fetched".format(self.seen, self.total))
        elif line.startswith("Installing collected packages"):
            self.doing = "unpacking"
            self.say("all packages fetched; unpacking them")

    def say(self, text):
        # type: (str) -> None
        self.told = time.time()
        print("  {:4.0f} s  {}".format(self.told - self.start, text), flush=True)

    def watch(self, over):
        # type: (threading.Event) -> None
        """Until it is over, say what is being done whenever nothing was said for a while."""
        while not over.wait(1):
            if time.time() - self.told > self.PATIENCE:
                self.say("still {}".format(self.doing))


def explain(log):
    # type: (Path) -> str
    """Say in one line why the installation failed."""
    text = log.read_text(encoding="utf-8", errors="replace").rsplit("\n$ ", 1)[-1]
    where = " (everything it said: {})".format(log.relative_to(ROOT))
    if NETWORK.search(text):
        return "No network: pip could not reach its package index. Connect, then repeat the command" + where
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in text:
        return "A downloaded package is not the one that was pinned; nothing of it was installed" + where
    if "No space left on device" in text:
        return "The disk is full: the environment needs about 2 GB" + where
    errors = [line.strip() for line in text.splitlines() if re.search(r"(?i)^\s*error\b", line)]
    return "Could not make the environment: " + (errors[-1] if errors else "pip failed") + where


def pip(env):
    # type: (Path) -> list[str]
    """Return the pip of an environment, quiet about its own version."""
    return [str(python(env)), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]


def register(env, log):
    # type: (Path, Path) -> None
    """Make scaling_lib importable from the working tree, with the build tool that the pins contain."""
    run([*pip(env), "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)], log, lambda line: None)


def make(env, wanted, log):
    # type: (Path, dict[str, str], Path) -> None
    """Make the environment from nothing and stamp it."""
    name = env.relative_to(ROOT)
    if env.exists():
        print("The environment {} is out of date or unfinished; making it anew.".format(name), flush=True)
        shutil.rmtree(str(env))
    else:
        print("Making the environment {} (once, 1 to 3 minutes).".format(name), flush=True)
    log.write_text("", encoding="utf-8")
    pins = len(set(re.findall(r"(?m)^([A-Za-z0-9_.-]+)==", PINS.read_text(encoding="utf-8"))))
    progress, over = Progress(pins), threading.Event()
    threading.Thread(target=progress.watch, args=(over,), daemon=True).start()
    try:
        run([sys.executable, "-m", "venv", "--clear", str(env)], log, lambda line: None)
        # Bytecode is left to the first import: compiling all of it would take as long as all the rest.
        quick = ["--only-binary", ":all:", "--no-compile", "--retries", "2", "--progress-bar", "off"]
        run([*pip(env), "--require-hashes", *quick, "-r", str(PINS)], log, progress)
        register(env, log)
    except subprocess.CalledProcessError:
        raise Trouble(explain(log)) from None
    finally:
        over.set()
    progress.say("ready")
    write_stamp(env, wanted)


def refresh(env, wanted, log):
    # type: (Path, dict[str, str], Path) -> None
    """Register the package again after a change of pyproject.toml alone."""
    (env / "ready.json").unlink()
    try:
        register(env, log)
    except subprocess.CalledProcessError:
        raise Trouble(explain(log)) from None
    write_stamp(env, wanted)


def write_stamp(env, stamp):
    # type: (Path, dict[str, str]) -> None
    """Write the stamp so that it is either whole or absent."""
    draft = env / "ready.tmp"
    with draft.open("w", encoding="utf-8") as out:
        json.dump(stamp, out, indent=1, sort_keys=True)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(env / "ready.json")


def ensure():
    # type: () -> Path
    """Return an environment that matches the pins, made or repaired where needed."""
    check_python()
    import fcntl

    env, wanted = folder(), fingerprint()
    if stamped(env) == wanted:
        return env
    env.parent.mkdir(exist_ok=True)
    log = env.parent / (env.name + ".log")
    with (env.parent / (env.name + ".lock")).open("w", encoding="utf-8") as lock:
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another command is making this environment; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        have = stamped(env)
        if have == wanted:
            return env
        if have and all(have.get(key) == value for key, value in wanted.items() if key != "pyproject.toml"):
            refresh(env, wanted, log)
        else:
            make(env, wanted, log)
    return env


def main():
    # type: () -> int
    """Make the environment, or print where its Python is."""
    parser = argparse.ArgumentParser(description="Make or repair the environment of the course.")
    parser.add_argument("--where", action="store_true", help="only print the path of the environment's Python")
    if parser.parse_args().where:
        print(python(folder()).relative_to(ROOT))
        return 0
    try:
        ensure()
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
