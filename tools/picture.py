"""Draw the README's picture from the library: the first plot of the data-parallel explorer, on paper of its own.

    python -m tools.picture   writes book/_static/readme.svg; a test compares it with what the library draws now
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from scaling_lib.explorers import dp_explorer

PATH = Path(__file__).resolve().parent.parent / "book" / "_static" / "readme.svg"
PAPER = '<rect width="100%" height="100%" fill="#fff"/>'


def picture() -> str:
    """Return the plot as a file that stands alone: an image in a README inherits neither colours nor variables."""
    found = re.search(r"<svg.*?</svg>", dp_explorer.html(), re.DOTALL)
    if found is None:
        raise ValueError("the data-parallel explorer draws no SVG: choose another picture in tools/picture.py")
    head, rest = found[0].split(">", 1)
    return f"{head}>{PAPER}{rest}\n".replace("currentColor", "#1b1b1f")


def main() -> int:
    """Write the picture."""
    PATH.write_text(picture(), encoding="utf-8")
    print(PATH.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
