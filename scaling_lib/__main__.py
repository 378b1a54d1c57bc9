"""`python -m scaling_lib COMMAND`: one line of error and exit code 2 for bad input, never a traceback."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import NoReturn

import scaling_lib

# Modules that add commands, each with `add_parser(subparsers)`; a command's parser names the function to run.
COMMANDS = ("cli", "cli_schedule", "cli_validate", "cli_plan", "cli_practice")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the page of usage before it."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where to read on; exit code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> Parser:
    """The parser of all commands."""
    top = Parser(prog="python -m scaling_lib", description="Plan large training runs.")
    top.add_argument("--version", action="version", version=f"scaling_lib {scaling_lib.__version__}")
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"scaling_lib.{name}").add_parser(subparsers)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code: 0 done, 2 bad input, 130 interrupted."""
    try:
        args = parser().parse_args(argv)
        if "run" not in args:
            parser().print_help(sys.stderr)
            return 2
        return int(args.run(args))
    except BrokenPipeError:  # the reader of a pipe left, as `| head` does
        sys.stderr.close()
        return 0
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("scaling_lib"):
            raise
        print(
            f"scaling_lib: this needs {error.name}, which is not installed: pip install {error.name}", file=sys.stderr
        )
        return 2
    except OSError as error:
        print(f"scaling_lib: {error.filename}: {error.strerror}; check the path", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"scaling_lib: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
