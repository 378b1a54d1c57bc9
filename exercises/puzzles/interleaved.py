"""Interleaved 1F1B in text: p devices with two chunks each, so 2p stages; device r holds stages r and p + r.

m is a multiple of p. Forwards go in rounds of p microbatches through chunk 0, then the same through chunk 1; backwards the
other way round. The bubble must be half that of 1F1B.
"""

from __future__ import annotations

from collections.abc import Callable


def solve(p: int, m: int) -> str:
    """Lines of actions separated by commas, stages numbered from 0 to 2p - 1."""
    lines = []
    for r in range(p):
        # cut: the order of forwards, the order of backwards, and how many forwards run ahead
        rounds = range(0, m, p)
        forwards = [f"{c * p + r}F{i + k}" for i in rounds for c in (0, 1) for k in range(p)]
        backwards = [f"{c * p + r}B{i + k}" for i in rounds for c in (1, 0) for k in range(p)]
        ahead = min(2 * (p - r - 1) + p, len(forwards))
        # end
        actions = forwards[:ahead]
        for done in range(len(backwards)):
            if ahead + done < len(forwards):
                actions.append(forwards[ahead + done])
            actions.append(backwards[done])
        lines.append(",".join(actions))
    return "\n".join(lines)


# The checker's part: cases, and what people often write instead.



def _order(
    p: int, m: int, ahead: Callable[[int], int], back: tuple[int, int] = (1, 0), width: int = 0, stride: bool = True
) -> str:
    """The order with something changed. width: microbatches of a round. stride: stages r and p + r, else 2r and 2r + 1."""
    lines, width = [], width or p
    for r in range(p):
        stage = (r, p + r) if stride else (2 * r, 2 * r + 1)
        rounds = range(0, m, width)
        forwards = [f"{stage[c]}F{i + k}" for i in rounds for c in (0, 1) for k in range(width)]
        backwards = [f"{stage[c]}B{i + k}" for i in rounds for c in back for k in range(width)]
        first = min(ahead(r), len(forwards))
        actions = forwards[:first]
        for done in range(len(backwards)):
            actions += [*forwards[first + done : first + done + 1], backwards[done]]
        lines.append(",".join(actions))
    return "\n".join(lines)


MISTAKES = (
    ("neighbouring chunks", "device r holds stages r and p + r; with 2r and 2r + 1 nothing is gained over 1F1B with longer stages.",
     lambda p, m: _order(p, m, lambda r: 2 * (p - r - 1) + 1, width=1, stride=False)),
    ("everything ahead", "all forwards run before the first backward; as fast, but every microbatch of both chunks is held.",
     lambda p, m: _order(p, m, lambda r: 2 * m)),
    ("backwards in the order of forwards", "a microbatch leaves chunk 1 first on its way back, then chunk 0.",
     lambda p, m: _order(p, m, lambda r: 2 * (p - r - 1) + p, (0, 1))),
    ("the warm-up of 1F1B", "with two chunks a device runs 2(p - r - 1) + p forwards ahead, not p - r - 1.",
     lambda p, m: _order(p, m, lambda r: p - r - 1)),
    ("the first round forgotten", "on top of the way to the last device, one round of p forwards of chunk 0 runs ahead.",
     lambda p, m: _order(p, m, lambda r: 2 * (p - r - 1))),
    ("a whole batch a round", "chunk 1 waits for all m microbatches of chunk 0; go in rounds of p.",
     lambda p, m: _order(p, m, lambda r: 2 * (p - r - 1) + m, width=m)),
    ("one chunk", "this is plain 1F1B on p stages; each device has two chunks, 2p stages in all.",
     lambda p, m: "\n".join(",".join(f"{r}{k}{i}" for i in range(m) for k in "FB") for r in range(p))),
)
