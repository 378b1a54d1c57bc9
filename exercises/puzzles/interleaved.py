"""Interleaved 1F1B in text: p devices with two chunks each, so 2p stages; device r holds stages r and p + r.

m is a multiple of p. Forwards go in rounds of p microbatches through chunk 0, then the same through chunk 1; backwards the
other way round. The bubble must be half that of 1F1B.
"""

from __future__ import annotations


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
