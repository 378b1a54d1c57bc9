"""Drills and the mock interview as ipywidgets; where no kernel runs, what is asked first is shown instead."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from html import escape
from typing import Any

from scaling_lib import bank, mock, quiz
from scaling_lib.drill import KINDS
from scaling_lib.questions import Instance, instance
from scaling_lib.quiz_html import question_html, verdict_html


class Practice:
    """A widget with a still: the still is stored in notebooks and shown on the site."""

    def __init__(self, still: str, build: Callable[[], Any]) -> None:
        self.still, self.build = still, build

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": "practice", "text/html": self.still}
        view = self.build()._repr_mimebundle_()
        key = "application/vnd.jupyter.widget-view+json"
        return {**bundle, key: view[key]} if key in view else bundle


def _answer_box(ipywidgets: Any, judge: Callable[[Any], None]) -> tuple[Any, Any]:
    """A field for the answer and its button; Enter does what the button does."""
    field = ipywidgets.Text(placeholder="answer with its unit", layout=ipywidgets.Layout(width="min(100%, 24em)"))
    with warnings.catch_warnings():  # what is to be used instead also fires when the field is left for a hint
        warnings.simplefilter("ignore", DeprecationWarning)
        field.on_submit(judge)
    button = ipywidgets.Button(description="Check", button_style="primary")
    button.on_click(judge)
    return field, button


def drills() -> Practice:
    """Questions of a chapter with new numbers, a field to answer in, the verdict below."""

    def build() -> Any:
        import ipywidgets

        chapters = [s for s in bank.STEMS if any(q.stem == s and q.kind in KINDS for q in quiz.items())]
        chapter = ipywidgets.Dropdown(options=chapters, value="dp", description="chapter")
        shown, verdict = ipywidgets.HTML(), ipywidgets.HTML()
        another = ipywidgets.Button(description="Another")
        state: dict[str, Instance] = {}
        counts: Counter[str] = Counter()

        def judge(_: Any) -> None:
            verdict.value = verdict_html(quiz.grade(state["asked"], field.value))

        field, button = _answer_box(ipywidgets, judge)

        def renew(_: Any = None) -> None:
            pool = [q for q in quiz.items(chapter=chapter.value) if q.kind in KINDS]
            counts[chapter.value] += 1
            asked = instance(pool[(counts[chapter.value] - 1) % len(pool)], counts[chapter.value])
            state["asked"], shown.value, verdict.value, field.value = asked, question_html(asked), "", ""

        chapter.observe(renew, names="value")
        another.on_click(renew)
        renew()
        return ipywidgets.VBox([chapter, shown, ipywidgets.HBox([field, button, another]), verdict])

    return Practice(question_html(instance(bank.question("dp.critical_tokens"), 1)), build)


def interview(seed: int = 1) -> Practice:
    """The mock interview: what is said, a field for the answer, the debrief at the end."""

    def spoken(text: str) -> str:
        return f"<pre style='white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere'>{escape(text)}</pre>"

    def build() -> Any:
        import ipywidgets

        talk = mock.interview(seed)
        said, written = ipywidgets.HTML(), ipywidgets.Output()
        field = ipywidgets.Textarea(placeholder="your answer", layout=ipywidgets.Layout(width="auto", height="6em"))
        button = ipywidgets.Button(description="Answer", button_style="primary")

        asked = [next(talk)]  # what belongs to the present stage, so that a second try still shows the question
        said.value = spoken(asked[0])

        def send(_: Any) -> None:
            try:
                following = talk.send(field.value)
                asked[:] = [following] if following.startswith("[") else [*asked, f"> {field.value}", following]
                said.value = spoken("\n\n".join(asked))
            except StopIteration as end:
                said.value, button.disabled, field.disabled = "", True, True
                written.outputs = (
                    {"output_type": "display_data", "data": {"text/markdown": str(end.value)}, "metadata": {}},
                )
            field.value = ""

        button.on_click(send)
        return ipywidgets.VBox([said, written, field, button])

    return Practice(spoken(next(mock.interview(seed, clock=lambda: 0.0))), build)
