"""`python -m scaling_lib COMMAND`: one line of error and exit code 2 for bad input, never a traceback."""

from __future__ import annotations

import argparse
import importlib
import sys

# Modules that add commands, each with `add_parser(subparsers)`; a command's parser names the function to run.
COMMANDS = ("cli", "cli_schedule", "cli_validate", "cli_plan", "cli_practice")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m scaling_lib", description="Plan large training runs.")
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"scaling_lib.{name}").add_parser(subparsers)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code: 0 done, 2 bad input, 130 interrupted."""
    try:
        args = parser().parse_args(argv)
        return int(args.run(args))
    except BrokenPipeError:  # the reader of a pipe left, as `| head` does
        sys.stderr.close()
        return 0
    except (ValueError, OSError) as error:
        print(f"scaling_lib: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
