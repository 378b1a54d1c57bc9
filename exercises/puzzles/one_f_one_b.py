"""1F1B in text: one line a device, `2F0` is the forward of stage 2 on microbatch 0, `2B0` its backward.

Write the order for p devices and m microbatches. Device r warms up with p - r - 1 forwards, then does one forward and one
backward in turn, and drains what is left. No device may hold more than p - r microbatches.
"""

from __future__ import annotations

from collections.abc import Callable


def solve(p: int, m: int) -> str:
    """Lines of actions separated by commas."""
    lines = []
    for r in range(p):
        # cut: the actions of device r
        warm = min(p - r - 1, m)
        actions = [f"{r}F{i}" for i in range(warm)]
        for i in range(m - warm):
            actions += [f"{r}F{warm + i}", f"{r}B{i}"]
        actions += [f"{r}B{i}" for i in range(m - warm, m)]
        # end
        lines.append(",".join(actions))
    return "\n".join(lines)


# The checker's part: cases, and what people often write instead.



def _ahead(p: int, m: int, warm: Callable[[int], int], stop: int = 0) -> str:
    """1F1B with another number of forwards ahead. stop: backwards left out at the end."""
    lines = []
    for r in range(p):
        ahead = min(warm(r), m)
        actions = [f"{r}F{i}" for i in range(ahead)]
        for i in range(m - ahead):
            actions += [f"{r}F{ahead + i}", f"{r}B{i}"]
        actions += [f"{r}B{i}" for i in range(m - ahead, m)]
        lines.append(",".join(actions[: len(actions) - stop]))
    return "\n".join(lines)


def _all_forwards(p: int, m: int, turned: bool = False) -> str:
    back = [*range(m)][:: -1 if turned else 1]
    return "\n".join(",".join([f"{r}F{i}" for i in range(m)] + [f"{r}B{i}" for i in back]) for r in range(p))


MISTAKES = (
    ("all forwards first", "this is GPipe: as fast, but every microbatch is held at once.", _all_forwards),
    ("no warm-up", "each device waits for the backward of a microbatch before it takes the next; p - r - 1 forwards run ahead.",
     lambda p, m: _ahead(p, m, lambda r: 0)),
    ("one forward too many ahead", "p - r forwards before the first turn hold one microbatch more than needed; p - r - 1 are enough.",
     lambda p, m: _ahead(p, m, lambda r: p - r)),
    ("the same warm-up on all", "devices nearer the end get their first backward sooner, so they need fewer forwards ahead.",
     lambda p, m: _ahead(p, m, lambda r: p - 1)),
    ("warm-up the wrong way round", "the first device waits longest for its first backward, so it runs furthest ahead: p - r - 1, not r.",
     lambda p, m: _ahead(p, m, lambda r: r)),
    ("not drained", "the backwards of the forwards that ran ahead are missing at the end.",
     lambda p, m: _ahead(p, m, lambda r: p - r - 1, 1)),
)
