"""1F1B in text: one line a device, `2F0` is the forward of stage 2 on microbatch 0, `2B0` its backward.

Write the order for p devices and m microbatches. Device r warms up with p - r - 1 forwards, then does one forward and one
backward in turn, and drains what is left. No device may hold more than p - r microbatches.
"""

from __future__ import annotations


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
