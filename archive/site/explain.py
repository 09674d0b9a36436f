"""What the galleries say of marks and rejections, in words for a reader who has seen none of them before."""

from __future__ import annotations

import re

from judge.types import Status, Verdict

HIGH_SPEEDUP = 10.0
"""Correct kernels above it are shown as suspicious: fusing alone seldom gives so much."""
HIGH = "unusually fast"
CLAIM_WORDS = "published claim"
_PLAIN_MARKS = frozenset({"copy", "unparsed"})  # bookkeeping, no suspicion

MARKS = {
    "overrides how tensors work": "A tensor that computes when it is compared is not timed.",
    "uses a stream of its own": "Honest when it is joined before the call returns, unseen by events when it is not.",
    "replays a graph": "Honest when it copies its inputs in; a graph of old pointers gives old answers.",
    "reads or sets torch's random numbers": "Inputs from a public seed can be drawn again instead of being read.",
    "looks at a tensor's identity": "The key of a cache of answers: the same tensor, not changed since.",
    "kernel keeps a table by address": "Answers found by the address of the input.",
    "kernel counts its calls": "Right until the checks are over, or all work in the first of many calls.",
    "sleeps": "A slow warm-up makes adaptive timers take fewer samples; a thread waits for the clock to stop.",
    "kernel leaves threads behind": "Work after the call has returned.",
    "kernel changes code or memory rights": "Patches the timer's calls or code, or writes to read-only inputs.",
    "kernel defines a function of the timer": "A definition of its own takes the place of the library's.",
    "kernel reaches for other processes": "The timer's or the judge's memory, written from outside.",
    "kernel plays with descriptors or signals": "Puts itself between the process and whoever reads from it.",
    "kernel ends its process": "A result is forged, then nothing can contradict it.",
    "names a place that others can read": "Answers, or code, left for the next process.",
    "kernel reads files while it compiles": "Answers or secrets of the machine become part of the kernel.",
    "kernel runs when it is loaded": "Code before any check is set up.",
    "sets the loader's environment": "Changes the processes that are started after it.",
    "installs packages": "Code from elsewhere, for this process or for the next.",
    "kernel keeps a part of the cache": "A flush between calls does not reach what is kept.",
    "kernel speaks to the profiler": "What the profiler does not see does not count.",
    "kernel is named like the harness's own": "Timers that leave their flush out by its name leave this out too.",
    "kernel pastes names together": "Names that no search finds.",
    "compiles with fast maths": "Less exact functions; the error budget decides whether it matters.",
    "no custom kernel": "It brings no kernel of its own and calls the library instead. That can be correct, but it is "
    "no kernel that was written, so it can never count as a win.",
    "library call in forward": "Besides its own kernel it calls library operations on tensors, which then do a part of "
    "the work. Honest for glue; a cheat when the kernel is there for show.",
    "mentions torch.compile": "It leaves the work to torch.compile, or reads its internals: the compiler then earned "
    "the speedup.",
    "runs text as code": "It builds code from text while it runs, which hides from a reader what is run.",
    "hides text": "It decodes packed text. Kernels have no need to, hidden instructions do.",
    "looks into the interpreter": "It looks at other objects, frames or modules of the process: the way to a "
    "reference's answer or to the clock, where a judge keeps them in the same process. This one does not.",
    "loads what was saved": "It loads stored objects, perhaps answers of an earlier call.",
    "starts threads or processes": "It starts threads or processes, which can work outside of the measured time.",
    "touches clocks": "It reads or replaces clocks. A patched clock makes any kernel look instant to a judge that asks "
    "it; this judge uses its own, in another process.",
    "touches files or network": "It opens files or connections, perhaps to keep answers between calls. In the jail "
    "there is neither a network nor a file that lasts.",
    "patches comparisons": "It names the functions that compare outputs, which some evaluators let one replace.",
    "changes torch's precision": "It lowers the precision of torch's arithmetic: faster, and less exact than asked.",
    "too long to be read": "Its text is longer than the rules read, so nothing is known of it but its measurements.",
    HIGH: f"Its speedup is above {HIGH_SPEEDUP:g}. It was measured twice and its outputs were verified, and still a "
    "reader should look: such factors come from a slow reference as often as from a good kernel.",
    CLAIM_WORDS: "It comes from a published collection with that collection's own numbers. The judge has not seen it, "
    "so it has no speedup here.",
}
"""Mark -> why it is worth a look. A mark is no proof."""

_REJECTIONS = (
    (
        re.compile(r"faster than its bytes can move|speed of light", re.I),
        "Faster than light",
        "It claims to move more bytes a second than the memory can. Then it did not do the work, or not while it was "
        "measured: a cached answer, a skipped part, or a clock that it had in its hand.",
    ),
    (
        re.compile(r"two measurements disagree"),
        "Measurements that disagree",
        "Measured again in fresh processes, on contents that it had not seen, it was another speed. What caches "
        "answers, counts its calls or works between them looks like this.",
    ),
    (
        re.compile(r"answered a (call|batch)|captured another number"),
        "Answers out of turn",
        "It answered the judge itself, instead of letting the runner do it: an attempt to say 'done' before the work.",
    ),
    (
        re.compile(r"stand still|moved while"),
        "Work while it should stand still",
        "Its process is stopped between calls. This one went on all the same, with threads or timers that work outside "
        "of the measured time.",
    ),
    (
        re.compile(r"judge's wire"),
        "Forged messages",
        "It wrote to the connection between its process and the judge, to pass off its own words as measurements.",
    ),
    (
        re.compile(r"kernels to compile|it built more than"),
        "Too much to compile",
        "It asked for more compilations or larger products than any kernel needs, which would wear the judge down.",
    ),
    (
        re.compile(r"precision"),
        "Less precision than asked",
        "It computes in a narrower type than the task's: faster, and another answer to another question.",
    ),
)
OTHER_REJECTION = ("Other rules", "It broke a rule that its message names.")


def suspicions(verdict: Verdict) -> list[str]:
    """Why a record is in the gallery of the suspicious; empty for most. Rejected ones have their own gallery."""
    if verdict.status is Status.REJECTED:
        return []
    marks = [CLAIM_WORDS if CLAIM_WORDS in flag else flag for flag in verdict.flags if flag not in _PLAIN_MARKS]
    if verdict.is_correct and (verdict.speedup or 0.0) > HIGH_SPEEDUP:
        marks.append(HIGH)
    return marks


def explain_mark(mark: str) -> str:
    """The sentence for a mark; unknown ones are said to be so."""
    return MARKS.get(mark, "The judge put this mark on it; this site has no words for it yet.")


def explain_rejection(message: str) -> tuple[str, str]:
    """(name, sentences) of the rule that a rejected record broke, from the judge's message."""
    return next(((name, text) for pattern, name, text in _REJECTIONS if pattern.search(message)), OTHER_REJECTION)
