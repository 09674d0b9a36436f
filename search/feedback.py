"""What the judge said, short enough to go back to a model: three gates in the order in which a kernel passes them.

Compile, then function, then speed: a model is told how far a kernel came, what stopped it there, and what to do about
it. This is the feedback of feature search and reinforcement (compilation, functional check, performance), read off the
verdict alone.
"""

from __future__ import annotations

from judge.types import Status, Verdict

MAX_MESSAGE = 600
"""Characters of the judge's message that are shown."""

_ADVICE = {
    Status.COMPILE_ERROR: "Mend what the compiler names; keep the rest.",
    Status.RUNTIME_ERROR: "Check sizes, strides and the order of the kernel's arguments.",
    Status.INCORRECT: "Compute exactly what the reference computes, for every shape, in the reference's precision.",
    Status.TIMEOUT: "It must end: look for loops that never do, and for work that grows too fast.",
    Status.REJECTED: "It broke a rule of the restrictions: keep to them.",
    Status.CORRECT: "It is right and not faster: find what limits it.",
    Status.WIN: "It is right and faster: find what limits it now.",
}
_LATER = "not reached"


def summarise(verdict: Verdict) -> str:
    """The verdict as four short lines: compile, function, speed, advice."""
    lines = {"Compile": "passed", "Function": "passed", "Speed": _LATER}
    status = verdict.status
    if status is Status.COMPILE_ERROR:
        lines |= {"Compile": f"FAILED: {shorten(verdict.message)}", "Function": _LATER}
    elif not verdict.is_correct:
        lines["Function"] = f"FAILED ({status}): {shorten(verdict.message)}{_error(verdict)}"
    else:
        lines["Speed"] = _speed(verdict)
    advice = _ADVICE.get(status, "")
    return "\n".join([*(f"- {name}: {text}" for name, text in lines.items()), *([f"- {advice}"] if advice else [])])


def shorten(message: str, most: int = MAX_MESSAGE) -> str:
    """At most `most` characters, the beginning and the end, in one line."""
    text = " ".join(message.split())
    if len(text) <= most:
        return text or "no message"
    head = most * 2 // 3
    return f"{text[:head]} [...] {text[len(text) - (most - head) :]}"


def _error(verdict: Verdict) -> str:
    if verdict.max_error is None or verdict.tolerance is None:
        return ""
    return f" (largest error {verdict.max_error:.3g}, {verdict.tolerance:.3g} allowed)"


def _speed(verdict: Verdict) -> str:
    if verdict.speedup is None:
        return "not measured"
    low, high = verdict.speedup_low or verdict.speedup, verdict.speedup_high or verdict.speedup
    times = [f"{name} {value:.4g} ms" for name, value in verdict.baselines.model_dump().items() if value is not None]
    own = f"; the kernel {verdict.candidate_ms:.4g} ms" if verdict.candidate_ms is not None else ""
    against = f"; {', '.join(times)}" if times else ""
    flags = f"; {', '.join(verdict.flags)}" if verdict.flags else ""
    return f"{verdict.speedup:.2f}x (99% interval {low:.2f} to {high:.2f}){own}{against}{flags}"
