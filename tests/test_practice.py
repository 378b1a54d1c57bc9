"""Exams, cards, sources of the exercise notebooks, the mock interview, the cheat sheet and their commands."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scaling_lib import bank, cheatsheet, dp, given, mock, practice_widgets, quiz, sheets
from scaling_lib.__main__ import main
from scaling_lib.hardware import cluster
from scaling_lib.questions import QuestionError, instance
from scaling_lib.quiz_html import prose
from scaling_lib.units import show

ROOT = Path(__file__).parents[1]


# exams --------------------------------------------------------------------------------------------


def test_an_exam_is_the_same_for_the_same_seed_and_mixes_chapters() -> None:
    asked = sheets.exam_questions(7, 10, 60)
    assert asked == sheets.exam_questions(7, 10, 60)
    assert len({one.question.id for one in asked}) == 10
    assert len({one.question.stem for one in asked}) >= 8
    assert [one.question.difficulty for one in asked] == sorted(one.question.difficulty for one in asked)
    assert [a.question.id for a in asked] != [a.question.id for a in sheets.exam_questions(8, 10, 60)]


def test_the_key_has_every_answer_and_the_exam_none() -> None:
    asked = sheets.exam_questions(3, 8, 60)
    exam, key = sheets.exam_html(3, asked, 60, False), sheets.exam_html(3, asked, 60, True)
    for one in asked:
        if one.question.numeric:
            assert f"<strong>{prose(one.answer_text)}</strong>" in key
            assert f"Answer: {one.answer_text}" not in exam
    assert exam.count("<li><p>") == key.count("<li class='key'>") == 8


def test_an_exam_prints_the_figures_that_its_questions_need() -> None:
    """On paper there is no catalogue: machines and models of the drawn questions, and no others."""
    asked = sheets.exam_questions(7, 10, 60)
    needing = [one for one in asked if one.question.needs]
    exam = sheets.exam_html(7, asked, 60, False)
    for one in needing:
        for title, row in given.rows(one, one.question.needs).items():
            assert f"<th scope='row'>{title}</th>" in exam
            for need, column, _ in (*given.MACHINES, *given.MODELS):
                if need in one.question.needs and column in row:
                    assert f"<td>{row[column]}</td>" in exam, (title, column)
    assert "Peaks are dense. Bandwidth is egress" in exam
    named = {title for one in needing for title in given.rows(one, one.question.needs)}
    assert exam.count("<th scope='row'>") == len(named)
    plain = [one for one in asked if not one.question.needs]
    assert "Figures given" not in sheets.exam_html(7, plain, 60, False)
    assert "Figures given" not in sheets.exam_html(7, asked, 60, True), "the key has the numbers put in"


def test_a_figure_that_is_asked_for_is_not_given() -> None:
    asked = [instance(bank.question(name)) for name in ("budget.params", "budget.train_flops")]
    (models,) = given.tables(asked)
    assert models.rows == (("Llama 3 70B", "asked below"),)
    assert given.tables(asked[1:])[0].rows == (("Llama 3 70B", "70.55 billion parameters"),)


def test_figures_are_given_where_a_prompt_lacks_them() -> None:
    line = (
        "DGX H100 with InfiniBand NDR, 8 x 400 Gb/s a node: dense bf16 peak 989 TFLOP/s, egress of a chip inside the "
        "domain 450 GB/s, to other domains 50 GB/s, domain 8 chips."
    )
    asked = quiz.ask("dp.critical_tokens")
    assert repr(asked).endswith(f"\n  Given: {line}")
    assert f"<details><summary>Figures given</summary><ul><li>{line}</li></ul></details>" in asked._repr_html_()
    assert "Given" not in repr(quiz.Asked(asked.instance, sheet=False))
    assert given.lines(instance(bank.question("hybrid.threshold"))) == [
        "TPU v5p pods of 8960, joined by the data-centre network: dense bf16 peak 459 TFLOP/s, egress of a chip inside "
        "the domain 180 GB/s an axis, to other domains 6.25 GB/s, domain 16 x 20 x 28 torus."
    ]
    assert given.lines(instance(bank.question("budget.params"))) == []
    assert "Given" not in repr(quiz.ask("budget.params"))


def test_an_exam_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(QuestionError, match="minutes"):
        sheets.exam_questions(1, 10, 5)
    for minutes in (math.nan, math.inf):
        with pytest.raises(QuestionError, match="minutes"):
            sheets.exam_questions(1, 2, minutes)
    with pytest.raises(QuestionError, match="pool"):
        sheets.exam_questions(1, 10_000, 1e6)
    with pytest.raises(QuestionError, match="no chapter"):
        sheets.exam_questions(1, 1, 10, ["dpp"])


def test_exam_and_key_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "browser", lambda: None)
    names = [p.name for p in sheets.write_exam(tmp_path, 5, 4, 60, ["dp", "tp"])]
    assert names == ["exam-5.html", "exam-5-key.html"]
    first = (tmp_path / "exam-5.html").read_bytes()
    sheets.write_exam(tmp_path, 5, 4, 60, ["dp", "tp"])
    assert (tmp_path / "exam-5.html").read_bytes() == first


@pytest.mark.skipif(sheets.browser() is None, reason="no Chromium to print with")
def test_an_exam_is_printed(tmp_path: Path) -> None:
    page = tmp_path / "exam.html"
    page.write_text(sheets.exam_html(1, sheets.exam_questions(1, 3, 60), 60, False), encoding="utf-8")
    pdf = sheets.print_pdf(page)
    assert pdf is not None
    assert pdf.read_bytes().startswith(b"%PDF")


# cards --------------------------------------------------------------------------------------------


def test_a_newer_deck_updates_the_cards_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("genanki")
    decks, times, packages = [], [], []
    for name in ("one", "two", "later"):
        if name == "later":
            monkeypatch.setenv("SOURCE_DATE_EPOCH", "4000000000")
        package, table = sheets.write_cards(tmp_path / name)
        packages.append(package.read_bytes())
        zipfile.ZipFile(package).extract("collection.anki2", tmp_path / name)
        with sqlite3.connect(tmp_path / name / "collection.anki2") as base:
            notes = base.execute("select guid, mid, flds, tags from notes order by guid").fetchall()
            decks.append(notes)
            times.append(base.execute("select distinct mod from notes").fetchall())
            kinds = json.loads(base.execute("select models from col").fetchone()[0])
            assert str(sheets.stable_id(sheets.ANKI_MODEL)) in kinds
        lines = table.read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(notes) == len(bank.questions())
        assert all(line.count("\t") == 3 for line in lines)
    assert packages[0] == packages[1], "two runs differ"
    assert decks[0] == decks[1] == decks[2], "the same ids and texts"
    assert times[0] < times[2], "Anki takes only what is newer"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(QuestionError, match="seconds since 1970"):
        sheets.changed()
    fields = dict(note[2].split("\x1f", 1) for note in decks[0])
    assert "2,198 tokens per chip" in fields["dp.critical_tokens"]


# sources of notebooks ------------------------------------------------------------------------------


def test_the_sources_of_the_exercises_belong_to_the_bank() -> None:
    folder = ROOT / "exercises" / "src"
    stored = {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in folder.rglob("*.md")}
    assert stored == sheets.sources(), "run: python -m tools.exercises"


def test_every_question_is_on_its_sheet_and_solved() -> None:
    for stem in bank.STEMS:
        sheet, solutions = sheets.sheet_source(stem), sheets.solution_source(stem)
        for question in quiz.items(chapter=stem):
            assert f'ask("{question.id}")' in sheet
            assert f'solve("{question.id}")' in solutions


@pytest.mark.parametrize("stem", bank.STEMS)
def test_stored_solutions_are_right(stem: str) -> None:
    notebook = json.loads((ROOT / "exercises" / "solutions" / f"{stem}.ipynb").read_text(encoding="utf-8"))
    verdicts = [
        "".join(output["data"]["text/plain"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" and "".join(cell["source"]).startswith("check(")
        for output in cell["outputs"]
    ]
    answered = [q for q in quiz.items(chapter=stem) if q.answer]
    assert len(verdicts) == len(answered)
    assert all("kind='right'" in text for text in verdicts)


# the mock interview ----------------------------------------------------------------------------------


def clock(step: float) -> object:
    now = [0.0]

    def tick() -> float:
        now[0] += step
        return now[0]

    return tick


@pytest.mark.parametrize("seed", range(12))
def test_all_stages_of_an_interview_speak_of_one_case(seed: int) -> None:
    stages = mock.questions_of(seed)
    assert [s.title for s, _ in stages] == [s.title for s in mock.STAGES]
    assert sum(s.minutes for s, _ in stages) == mock.MINUTES
    models = {
        one.values["model"] for _, one in stages if "model" in one.question.draw and one.question.stem != "scaling"
    }
    assert len(models) <= 2, models  # a question whose traps would meet in this case keeps its own numbers


def test_right_answers_bring_further_questions_and_a_clean_debrief() -> None:
    talk = mock.interview(2, clock(10))  # type: ignore[arg-type]
    said, count = next(talk), 0
    stages = iter(mock.questions_of(2))
    try:
        while True:
            count += 1
            if said.startswith("["):
                _, asked = next(stages)
                answer = " ".join(asked.question.says or ()) if asked.question.rubric else asked.answer_text
                if asked.question.options:
                    answer = answer[1]
            else:
                answer = "I would look at the batch."
            said = talk.send(answer)
    except StopIteration as end:
        text = str(end.value)
    assert count > len(mock.STAGES)
    assert "Asked further" in text
    assert int(re.search(r"Score (\d+)%", text)[1]) >= 87  # type: ignore[index]


def test_wrong_answers_bring_a_diagnosis_a_second_try_and_the_steps() -> None:
    said: list[str] = []
    text = mock.run(4, read=lambda _: "1 token", say=said.append, clock=clock(1))  # type: ignore[arg-type]
    assert sum("Try once more." in s for s in said) == len(mock.STAGES)
    assert text.count("Answer: ") >= 5
    assert "To revise: " in text


def test_an_answer_that_cannot_be_read_costs_no_try() -> None:
    talk = mock.interview(4, clock(1))  # type: ignore[arg-type]
    (_, _), (stage, asked) = mock.questions_of(4)[:2]
    next(talk)
    said = talk.send("")
    assert stage.title in said
    again = talk.send("many")
    assert again.startswith("cannot read 'many'")
    assert again.endswith("Say it again.")
    assert talk.send(asked.answer_text).startswith(("Right", "[")), "right at the first try that counts"


def test_an_interview_broken_off_is_debriefed() -> None:
    def leave(_: str) -> str:
        raise EOFError

    said: list[str] = []
    text = mock.run(1, read=leave, say=said.append, clock=clock(1))  # type: ignore[arg-type]
    assert "Score 0%" in text
    assert "Broken off" in said[-1]


# spoken answers and the cheat sheet ------------------------------------------------------------------


def test_spoken_answers_are_folded() -> None:
    page = quiz.aloud("interview.q3_tp_inside")._repr_html_()
    assert page.count("<details>") == 5
    assert all(part in page for part in ("30 seconds", "2 minutes", "5 minutes", "The interviewer goes on"))
    with pytest.raises(QuestionError, match="no spoken answers"):
        quiz.aloud("dp.max_params")


def test_the_cheat_sheet_is_computed() -> None:
    text = repr(cheatsheet.page())
    h100 = cluster("dgx-h100")
    for egress in (h100.levels[0].egress, h100.egress(10**5)):
        assert show(dp.critical_tokens(h100.chip.flops("bf16"), egress), "") in text
    assert "18.9%" in text
    page = cheatsheet.page()
    assert page._repr_html_().count("<table>") == len(page.tables) == 7
    assert all(rule in text for rule in page.rules)
    assert all(len(row) == len(table.head) for table in page.tables for row in table.rows)
    bubbles = {row[0]: row[-1] for table in page.tables if "Pipelines" in table.title for row in table.rows}
    assert (bubbles["1F1B"], bubbles["ZB-H1"], bubbles["DualPipe"]) == ("21.0", "7.00", "6.00")


# commands --------------------------------------------------------------------------------------------


def test_check_judges_hints_and_solves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "dp.critical_tokens", "2.2k tokens"]) == 0
    assert main(["check", "dp.critical_tokens", "1099"]) == 1
    assert "both directions" in capsys.readouterr().out
    assert main(["check", "dp.critical_tokens", "--hint", "2"]) == 0
    assert main(["check", "dp.critical_tokens", "--solve", "--seed", "3"]) == 0
    assert main(["check", "dp.critical_tokens"]) == 0
    out = capsys.readouterr().out
    assert instance(bank.question("dp.critical_tokens"), 3).answer_text in out
    assert main(["check", "dp.nonsense", "1"]) == 2
    assert "no question" in capsys.readouterr().err


def test_drill_and_sheet_run_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sheets, "browser", lambda: None)
    monkeypatch.setattr("builtins.input", lambda _: "q")
    assert main(["drill", "dp", "--minutes", "3"]) == 0
    assert "takes it up again" in capsys.readouterr().out
    assert main(["drill", "--progress"]) == 0
    assert "Boxes" in capsys.readouterr().out
    assert main(["drill", "dpp", "--new"]) == 2
    assert main(["sheet", "--seed", "1", "-n", "2", "--minutes", "30", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "exam-1-key.html").exists()


def test_where_there_is_no_terminal_practice_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(_: str) -> str:
        raise RuntimeError("input(): lost sys.stdin")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("builtins.input", closed)
    assert main(["drill", "dp", "--minutes", "3"]) == 0
    assert "takes it up again" in capsys.readouterr().out
    assert main(["mock", "--seed", "1", "--out", str(tmp_path / "none" / "debrief.md")]) == 2
    assert "[0:00 of 45 min]" not in capsys.readouterr().out, "a debrief that cannot be written is known at once"
    assert main(["mock", "--seed", "1", "--out", str(tmp_path / "debrief.md")]) == 0
    assert (tmp_path / "debrief.md").read_text(encoding="utf-8").startswith("# Mock interview 1")


def buttons(box: object) -> dict[str, Any]:
    """The buttons of a widget by their text."""
    found: dict[str, Any] = {}
    for child in getattr(box, "children", ()):
        found |= buttons(child)
        if type(child).__name__ == "Button":
            found[child.description] = child
    return found


def test_widgets_judge_renew_and_debrief() -> None:
    pytest.importorskip("ipywidgets")
    box = practice_widgets.drills().build()
    chapter, shown, row, verdict = box.children
    field = row.children[0]
    field.value = "1099"
    field._handle_string_msg(field, {"event": "submit"}, [])  # what a browser sends when Enter is pressed
    assert "both directions" in verdict.value
    buttons(box)["Another"].click()
    assert (field.value, verdict.value) == ("", "")
    chapter.value = "pp"
    assert 'data-question="pp.bubble" data-seed="1"' in shown.value
    talk = practice_widgets.interview(2).build()
    said, written, field, button = talk.children
    for _ in range(40):
        if not button.disabled:
            field.value = "1 parsec"
            button.click()
    assert button.disabled
    assert said.value == ""
    assert written.outputs[0]["data"]["text/markdown"].startswith("# Mock interview 2")
