"""Commands of practice: drill, check, mock, sheet, puzzle, anki."""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from scaling_lib import drill, leitner, quiz


def add_parser(subparsers: Any) -> None:
    """Add the commands of practice to the parser of all commands."""
    part = subparsers.add_parser("drill", help="questions with new numbers against the clock, in the terminal")
    part.add_argument("topics", nargs="*", help="chapters, e.g. dp budget; all when none is given")
    part.add_argument("--minutes", type=float, default=20, help="length of the drill (default 20)")
    part.add_argument(
        "--new", action="store_true", help="begin another drill instead of going on with one that was left"
    )
    part.add_argument("--progress", action="store_true", help="only show boxes and calibration")
    part.set_defaults(run=_drill)

    part = subparsers.add_parser("check", help="verdict on an answer: check dp.critical_tokens '2.2k tokens'")
    part.add_argument("id", help="name of the question, as drills and sheets print it")
    part.add_argument("answer", nargs="?", help="left out: the question is shown")
    part.add_argument("--seed", type=int, help="other numbers (default: those of the book)")
    part.add_argument("--hint", type=int, choices=(1, 2, 3), help="show a hint")
    part.add_argument("--solve", action="store_true", help="show the worked steps")
    part.set_defaults(run=_check)

    part = subparsers.add_parser("mock", help="a mock interview of 45 minutes with a written debrief")
    part.add_argument("--seed", type=int, default=1, help="which interview (default 1)")
    part.add_argument("--out", type=Path, help="file for the debrief (Markdown)")
    part.set_defaults(run=_mock)

    part = subparsers.add_parser("sheet", help="a printable exam and its key, as HTML")
    part.add_argument("--seed", type=int, required=True, help="which exam; the same seed, the same questions")
    part.add_argument("-n", type=int, default=10, help="questions (default 10)")
    part.add_argument("--minutes", type=float, default=60, help="time printed on the exam (default 60)")
    part.add_argument("--topics", nargs="*", help="chapters; all when none is given")
    part.add_argument("--out", type=Path, default=Path(), help="folder (default: this one)")
    part.set_defaults(run=_sheet)

    part = subparsers.add_parser("puzzle", help="build a parallel step on the virtual mesh, and have it checked")
    part.add_argument("name", nargs="?", help="left out: the puzzles are listed")
    part.add_argument("file", nargs="?", type=Path, help="Python file with your `solve`")
    part.add_argument("--picture", type=Path, help="file for the picture (SVG) of a right solution")
    part.set_defaults(run=_puzzle)

    part = subparsers.add_parser("anki", help="the deck of cards (.apkg) and a table (.tsv)")
    part.add_argument("--out", type=Path, default=Path(), help="folder (default: this one)")
    part.set_defaults(run=_anki)


def _read(prompt: str) -> str:
    """A line of the reader's. Raises EOFError also where there is no terminal to read from."""
    try:
        return input(prompt)
    except RuntimeError:  # Python's own word for a closed stdin or stdout
        raise EOFError from None


def _drill(args: argparse.Namespace) -> int:
    if args.progress:
        progress, message = leitner.load(leitner.default_path())
        print("\n".join(filter(None, [message, drill.summary(progress, Counter())])))
        return 0
    # Ctrl-C, also where a shell in the background has it ignored, a closed terminal and a shutdown leave as q does
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.default_int_handler)
    drill.run(args.topics or None, args.minutes, fresh=args.new, read=_read)
    return 0


def _check(args: argparse.Namespace) -> int:
    if args.solve:
        print(quiz.solve(args.id, args.seed))
    elif args.hint:
        print(quiz.hint(args.id, args.hint, args.seed))
    elif args.answer is None:
        print(repr(quiz.ask(args.id, args.seed)))
    else:
        verdict = quiz.check(args.id, args.answer, args.seed)
        print(verdict)
        return 0 if verdict else 1
    return 0


def _mock(args: argparse.Namespace) -> int:
    from scaling_lib import mock

    if args.out:  # 45 minutes later is too late to learn that it cannot be written
        args.out.open("a").close()
    text = mock.run(args.seed, read=_read)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
        print(f"The debrief is in {args.out}.")
    return 0


def _sheet(args: argparse.Namespace) -> int:
    from scaling_lib import sheets

    for path in sheets.write_exam(args.out, args.seed, args.n, args.minutes, args.topics or None):
        print(path)
    return 0


def _puzzle(args: argparse.Namespace) -> int:
    from scaling_lib import puzzles

    if args.name is None:
        print("\n".join(puzzles.NAMES))
        return 0
    if args.file is None:
        print(puzzles.question(args.name), end="")
        return 0
    own: dict[str, Any] = {}
    try:
        exec(compile(args.file.read_text(encoding="utf-8"), str(args.file), "exec"), own)  # the reader's own program
    except (SyntaxError, NameError, ImportError) as error:
        raise ValueError(f"{args.file} does not run: {error}") from None
    if "solve" not in own:
        raise ValueError(f"{args.file} defines no `solve`: save the puzzle's text there and fill it in")
    verdict = puzzles.check(args.name, own["solve"])
    print(verdict)
    if args.picture and verdict:
        args.picture.write_text(verdict.picture, encoding="utf-8")
        print(f"The picture is in {args.picture}.")
    return 0 if verdict else 1


def _anki(args: argparse.Namespace) -> int:
    from scaling_lib import sheets

    for path in sheets.write_cards(args.out):
        print(path)
    return 0


def run(args: argparse.Namespace) -> int:
    """Run the command that the parser chose."""
    return int(args.run(args))


def main(argv: list[str] | None = None) -> int:
    """Only the commands of practice, for tests and for `python -m scaling_lib.cli_practice`."""
    parser = argparse.ArgumentParser(prog="python -m scaling_lib.cli_practice")
    add_parser(parser.add_subparsers(required=True))
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
