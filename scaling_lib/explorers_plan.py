"""An explorer of the search: a reader's own model, chips and batch, and the layouts that train it fastest."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from scaling_lib.draw import bar_chart, readout
from scaling_lib.explore import Choice, Explorer, Slider
from scaling_lib.explorers_own import model_sliders, own_model
from scaling_lib.explorers_predict import MEASURED
from scaling_lib.library import cluster, model
from scaling_lib.model import n_params
from scaling_lib.units import show

if TYPE_CHECKING:  # the search needs numpy, which a page loads only when a reader asks for this explorer
    from scaling_lib.search import Answer, Layout

SHOWN = 8  # layouts drawn
_LLAMA = model("llama-3-70b")


@lru_cache(maxsize=4)
def plan_answer(
    layers: int, d_model: int, d_ff: int, heads: int, kv_heads: int, vocab: int,
    cluster_name: str, chips: str, sequences: str, seq_len: int,
) -> Answer:  # fmt: skip
    """The best layouts of the explorer's job: recomputation none or full, ZeRO 1 or 3, few sequences at once.

    Raises ValueError when none runs.
    """
    from scaling_lib.search import Question, Space, search, why_nothing

    m = own_model(layers, d_model, d_ff, heads, kv_heads, vocab)
    asked = Question(m, cluster(cluster_name), int(chips), int(sequences) * seq_len, seq_len)
    space = Space(recompute=("none", "full"), zero=(1, 3), micro_batch=(1, 2, 4))
    answer = search(asked, space, top=SHOWN, progress=False)
    if not answer.best:
        raise ValueError(why_nothing(answer))
    return answer


def _name(layout: Layout) -> str:
    p = layout.plan
    told = (f"{p.virtual_stages} chunks" * (p.virtual_stages > 1), f"{p.micro_batch} at once" * (p.micro_batch > 1),
            "light ends" * bool(p.light_ends), "recomputed" * (p.recompute == "full"))  # fmt: skip
    return ", ".join((f"DP {int(p.dp)} TP {p.tp} PP {p.pp} CP {p.cp}, ZeRO {p.zero}", *filter(None, told)))


def draw_plan(**state: object) -> str:
    """The fastest layouts as bars, seconds a step each, and what the best one is."""
    answer = plan_answer(**state)
    q, best = answer.question, answer.best[0]
    bars = [(_name(x), x.seconds, show(x.seconds, "s")) for x in answer.best]
    near = "no other layout is" if answer.within == 1 else f"{answer.within:,} layouts, itself included, are"
    words = f"{_name(best)} takes {show(best.seconds, 's')}; {near} within 5% of it."
    rows = [
        ("layouts", f"{answer.evaluated:,}"),
        ("that run", f"{answer.feasible:,}"),
        ("within 5% of the best", f"{answer.within:,}"),
        ("most are rejected by", next(iter(answer.rejected), "nothing")),
        ("seconds a step, best", show(best.seconds, "s")),
        ("MFU, attention counted causal", show(best.mfu, "%")),
        ("memory of the fullest chip", show(best.memory, "B")),
        ("sequences a microbatch", f"{best.plan.micro_batch:,}"),
        ("parameters", show(n_params(q.model), "param")),
        ("batch", show(q.batch_tokens, "token")),
    ]
    return bar_chart(f"Best layouts on {q.chips:,} × {q.cluster.chip.name}", words, bars) + readout(rows)


plan_explorer = Explorer(
    "Your job: the best layouts",
    (
        *model_sliders(_LLAMA, heads_step=8, most_kv_heads=_LLAMA.n_heads),
        Choice("cluster_name", "cluster", MEASURED, "dgx-h100"),
        Choice("chips", "chips", ("64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384"), "2048"),
        Choice("sequences", "sequences a batch", ("256", "512", "1024", "2048", "4096", "8192"), "2048"),
        Slider("seq_len", "sequence, S (tokens)", 1024, 131_072, 8192, step=1024),
    ),
    draw_plan,
)
