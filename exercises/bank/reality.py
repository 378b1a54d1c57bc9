"""Questions of the chapter on predictions and what was measured."""

from __future__ import annotations

from typing import Any

from scaling_lib import budget, cluster, model, n_params
from scaling_lib.questions import Option, Point, Question, Trap


def ape(predicted: float, measured: float) -> float:
    """Absolute percentage error of a prediction, as a fraction of what was measured."""
    return abs(predicted / measured - 1)


def _one(p: Any) -> dict[str, Any]:
    return {
        "error": ape(p.predicted, p.measured),
        "of_predicted": ape(p.measured, p.predicted),
        "quotient": p.predicted / p.measured,
    }


def _table(p: Any) -> dict[str, Any]:
    errors = sorted(abs(r - 1) for r in p.ratios)
    return {
        "listed": ", ".join(f"{r:.2f}" for r in p.ratios),
        "sorted": ", ".join(f"{100 * e:.0f}" for e in errors),
        "median": errors[len(errors) // 2],
        "signed": abs(sorted(p.ratios)[len(p.ratios) // 2] - 1),
        "mean": sum(errors) / len(errors),
        "worst": errors[-1],
    }


def _repeat(p: Any) -> dict[str, Any]:
    return {
        "floor": (p.slow - p.fast) / (p.slow + p.fast),
        "best": 2 * p.fast * p.slow / (p.fast + p.slow),
        "spread": p.slow / p.fast - 1,
    }


def _held(p: Any) -> dict[str, Any]:
    return {"share": p.held / p.runs, "missed": 1 - p.held / p.runs, "right": "narrow"}


def _calibrated(p: Any) -> dict[str, Any]:
    factor = p.measured / p.predicted
    return {
        "factor": factor,
        "there": p.other * factor,
        "inverse": p.other / factor,
        "added": p.other + p.measured - p.predicted,
        "plain": p.other,
    }


def _step(p: Any) -> dict[str, Any]:
    n, peak = n_params(model(p.model)), cluster(p.cluster).chip.flops("bf16")
    flops = budget.train_flops(n, p.batch)
    seconds = budget.seconds(flops, p.chips, peak, p.mfu)
    return {
        "params": n,
        "peak": peak,
        "flops": flops,
        "seconds": seconds,
        "forward": seconds / 3,
        "full": seconds * p.mfu,
    }


QUESTIONS = (
    Question(
        "reality.ape",
        "numeric",
        "A step was predicted at {predicted} s and measured at {measured} s. How large is the APE, the absolute percentage error?",
        (
            "An error is a share of something: of which of the two?",
            "APE = |T_predicted/T_measured - 1|.",
            "|{predicted}/{measured} - 1|.",
        ),
        canonical={"predicted": 5.4, "measured": 6.4},
        draw={
            "pair": (
                {"predicted": 5.4, "measured": 6.4},
                {"predicted": 9.6, "measured": 8.0},
                {"predicted": 3.4, "measured": 4.0},
                {"predicted": 12.5, "measured": 10.0},
                {"predicted": 1.6, "measured": 2.1},
            )
        },
        derive=_one,
        answer="error",
        unit="%",
        traps=(
            Trap(
                "a share of the prediction", "of_predicted", "what was measured is the reference, so it stands below."
            ),
            Trap("the quotient", "quotient", "the quotient is 100% for a perfect prediction; take 1 from it."),
        ),
        steps={"rates": "{predicted}/{measured} = {quotient:|5}.", "knob": "Its distance from 1, without the sign."},
        difficulty=1,
        minutes=1,
        tags=("error",),
    ),
    Question(
        "reality.median_ape",
        "numeric",
        "Predicted over measured for five runs: {listed}. How large is the median APE?",
        (
            "The sign goes first, then the order.",
            "Middle of |T_predicted/T_measured - 1|.",
            "In percent and in order: {sorted}.",
        ),
        canonical={"ratios": (0.97, 1.05, 0.90, 1.12, 1.01)},
        draw={
            "ratios": (
                (0.97, 1.05, 0.90, 1.12, 1.01),
                (0.92, 1.02, 1.06, 0.85, 1.15),
                (1.01, 0.88, 1.04, 1.20, 0.93),
                (0.99, 1.10, 0.94, 1.03, 0.75),
            )
        },
        derive=_table,
        answer="median",
        unit="%",
        traps=(
            Trap("signs kept", "signed", "with their signs, errors above and below cancel; APE drops the sign first."),
            Trap("the mean", "mean", "the mean follows the worst run; the median is asked."),
            Trap("the worst", "worst", "the middle of the five is asked."),
        ),
        steps={"rates": "Without sign and in order: {sorted}%.", "compare": "The third of five."},
        minutes=2,
        tags=("error",),
    ),
    Question(
        "reality.floor",
        "numeric",
        "One configuration was measured twice: {fast} s and {slow} s a step. A predictor sees the same columns both times. How large is "
        "its largest APE over the two at the least?",
        (
            "It must give one number for both.",
            "Best between them: as far off at both ends, (b - a)/(b + a).",
            "({slow} - {fast})/({slow} + {fast}).",
        ),
        canonical={"fast": 8.0, "slow": 9.0},
        draw={"fast": (8.0, 8.2, 7.5), "slow": (8.8, 9.0, 9.6, 10.5)},
        derive=_repeat,
        answer="floor",
        unit="%",
        traps=(Trap("the whole spread", "spread", "a prediction between the two is off by half of that at each end."),),
        steps={
            "compare": "At {best:|5} s both ends are equally far off: {best:|5}/{fast} - 1.",
            "knob": "({slow} - {fast})/({slow} + {fast}), about half the spread of {spread:%}.",
        },
        difficulty=3,
        tags=("error", "floor"),
    ),
    Question(
        "reality.coverage",
        "choice",
        "Intervals that are said to hold 80% of runs held {held} of {runs} runs of sources that taught the predictor nothing. What does that mean?",
        (
            "Which share did they hold, and which should they?",
            "held / runs against 80%.",
            "{held}/{runs} = {share:%}.",
        ),
        canonical={"held": 120, "runs": 200},
        draw={"held": (110, 120, 126), "runs": (200, 210)},
        derive=_held,
        answer="right",
        options=(
            Option("narrow", "The intervals are too narrow: the predictor is surer than it may be"),
            Option(
                "good",
                "They are good: most runs are inside",
                "80% were promised; whoever plans with them errs about twice as often.",
            ),
            Option("wide", "They are too wide", "Too wide ones would hold more than 80%."),
            Option("bias", "The predictions are a fifth too low", "Coverage says nothing of the side, nor of how far."),
        ),
        steps={"compare": "{share:%} inside where 80% were promised, {missed:%} outside instead of 20%."},
        minutes=1,
        importance=4,
        tags=("interval",),
    ),
    Question(
        "reality.one_timed_step",
        "numeric",
        "A predictor says {predicted} s for the layout in use; the timed step takes {measured} s. For another layout of the same job it says "
        "{other} s. Which step do you expect there, if the one timing is taken at its face value?",
        (
            "Is the error a number of seconds, or a ratio?",
            "T = T_other x T_measured/T_predicted.",
            "{other} x {measured}/{predicted}.",
        ),
        canonical={"predicted": 6.0, "measured": 7.5, "other": 4.0},
        draw={
            "predicted": (6.0, 6.4),
            "measured": (7.5, 8.0),
            "other": (3.0, 4.0, 4.4),
        },
        derive=_calibrated,
        answer="there",
        unit="s",
        traps=(
            Trap("the difference added", "added", "what is slow is slow in proportion: a short step loses less."),
            Trap("the ratio inverted", "inverse", "the measured step was longer than predicted, so the other will be."),
            Trap("no calibration", "plain", "the timed step has shown that this machine is slower."),
        ),
        steps={
            "rates": "{measured}/{predicted} = {factor:|5}.",
            "knob": "{other} s x {factor:|5}; `calibrate` draws the factor a little to 1, as one step may be off by chance.",
        },
        minutes=2,
        tags=("calibration",),
    ),
    Question(
        "reality.audit_mean_error",
        "audit",
        "Audit. 'Four predictions were off by -{off}%, +{off}%, -{off}% and +{off}%. The mean error is 0, so the predictor is exact.' How large "
        "is its median APE?",
        (
            "What does a mean do with signs?",
            "Drop the sign, then take the middle.",
            "All four are {off}.",
        ),
        canonical={"off": 12},
        draw={"off": (8, 12, 15, 25)},
        derive=lambda p: {"median": p.off / 100, "whole": 2 * p.off / 100},
        answer="median",
        unit="%",
        traps=(Trap("from end to end", "whole", "an error is counted from what was measured, not from end to end."),),
        steps={"compare": "A mean of 0 says that no side is favoured (no bias), not that a run is met."},
        difficulty=1,
        minutes=1,
        tags=("error", "bias"),
    ),
    Question(
        "reality.explain_wrong",
        "explain",
        "How would you find out that a predictor of step times is wrong?",
        (
            "Runs it has not seen.",
            "Error, interval, floor.",
            "Leave a source out; count what the interval holds; look at repetitions; time one step.",
        ),
        rubric=(
            Point(
                "runs of sources that the fit has not seen",
                (r"left.?out|leave.*out|unseen|has not seen|held.?out|other source",),
            ),
            Point("coverage of the interval", (r"interval|coverage|80 ?%",)),
            Point("repeated measurements as the floor", (r"repeat|repetition|floor|twice|same config",)),
            Point("one timed step of your own", (r"timed? (one|a)|one (timed )?step|calibrat|measure.*own",)),
        ),
        says=(
            "Predict runs of sources that taught it nothing. Compare the median APE with a plain rule and with how far repetitions lie apart, and count how "
            "many runs its 80% interval holds.",
            "A fit that is tested on its own rows looks too good, so leave whole sources out: a source has habits of its own. Report the median, the 90% "
            "quantile and the sign: a median error that keeps its sign is a bias. The interval must hold four of five such runs; fewer means that it is too narrow, more that "
            "it is too wide. The floor is half of how far two runs with the same columns lie apart.",
            "Then open a wrong prediction. It is a sum of parts, so a trace or one timed step shows which part is off. Time a step of your own and calibrate: one "
            "ratio carries over to other layouts of the job. Ask what the rows leave out: kinds of models, chips and stacks that few sources "
            "measured. And a step is not a run: restarts, evaluation and the ramp of the batch come on top.",
        ),
        steps={"compare": "Error on unseen sources, coverage, floor."},
        follow_ups=("Why whole sources and not rows at random?", "What does an interval that holds all runs cost?"),
        difficulty=3,
        importance=4,
        minutes=4,
        tags=("aloud", "interval"),
    ),
    Question(
        "reality.estimate_step",
        "estimate",
        "Without paper: how long is a step of {model:model} on {batch} tokens and {chips} chips of {cluster:machine} by the plain rule of "
        "{mfu:%} MFU? Add a 90% interval.",
        (
            "FLOPs of the step over what the chips do.",
            "6 N_params B / (chips x C x MFU).",
            "N_params = {params:Gparam}, C = {peak:FLOP/s}.",
        ),
        canonical={"model": "llama-3-405b", "cluster": "dgx-h100", "chips": 16384, "batch": 16777216, "mfu": 0.4},
        draw={
            "model": ("llama-3-70b", "llama-3-405b"),
            "chips": (4096, 8192, 16384),
            "batch": (8388608, 16777216),
        },
        derive=_step,
        answer="seconds",
        unit="s",
        traps=(
            Trap("the forward pass alone", "forward", "training costs six FLOPs a parameter and token, not two."),
            Trap("the full peak", "full", "only {mfu:%} of the peak arrives."),
        ),
        steps={"flops": "{flops:FLOP}.", "rates": "{chips} x {peak:FLOP/s} x {mfu:%}.", "knob": "Divide."},
        minutes=2,
        tags=("estimate",),
        needs=("peak", "params"),
    ),
    Question(
        "reality.code_ape",
        "code",
        "Write a function of `predicted` and `measured` (seconds) that returns the APE as a fraction.",
        ("What is the reference?", "|T_predicted/T_measured - 1|.", "One line."),
        canonical={"predicted": 5.4, "measured": 6.4},
        draw={"predicted": (5.4, 9.6, 3.4), "measured": (6.4, 8.0, 4.0)},
        derive=lambda p: {"error": ape(p.predicted, p.measured)},
        reference=ape,
        arguments=("predicted", "measured"),
        steps={"knob": "`def ape(predicted, measured): return abs(predicted / measured - 1)`"},
        difficulty=1,
        minutes=1,
        tags=("code", "error"),
    ),
)
