"""A/A: how often does the judge call a kernel faster than itself, and how far from 1 does it measure it?

    .venv/bin/python benchmarks/judge_aa.py --rounds 40 squared_relu swiglu
    .venv/bin/python benchmarks/judge_aa.py --device cuda --rounds 200 --seconds 120 squared_relu softmax

The candidate is the task's own Model under the name ModelNew, so its true speedup is exactly 1. Prints, per task, the
geometric mean of the measured speedups with its standard error, the median half-width of the 99% interval, the share of
intervals that hold 1, and how many lower ends lie above the threshold of a win (at most one in a hundred may). Then the
pairs' standard deviation that these intervals show, and the power that the rule has with it: the share of kernels of a
true speedup of 1.03, 1.05, 1.10 and 1.20 that would be called a win, by simulation (judge/simulation.py), once as they
are and once with the measured offset from 1 (a CPU's baseline is credited its own, shorter, clock).
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Iterator

import numpy as np
from scipy import stats

from judge.api import Judge
from judge.settings import JudgeSettings
from judge.simulation import rates_of_spread
from judge.types import Candidate, Verdict
from tasks.loader import load_task

POWER_AT = (1.03, 1.05, 1.10, 1.20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=["squared_relu", "swiglu", "ssm_scan"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=JudgeSettings().pairs)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each task: fewer rounds when they are over")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="GPU: torch.compile too")
    arguments = parser.parse_args()
    settings = JudgeSettings(pairs=arguments.pairs, device=arguments.device, cuda_compile_baseline=arguments.compile)
    print(f"{'task':20} {'rounds':>6} {'mean':>7} {'s.e.':>6} {'half':>6} {'cover':>6} {'false wins':>10}")
    with Judge(settings) as judge:
        for name in arguments.tasks:
            task = load_task(name)
            twin = Candidate(code=task.source.replace("class Model(", "class ModelNew("))
            verdicts = [judge.judge(task, twin) for _ in _rounds(arguments.rounds, arguments.seconds)]
            assert all(verdict.is_correct for verdict in verdicts), [v.message for v in verdicts if not v.is_correct]
            logs = np.log([verdict.speedup or math.nan for verdict in verdicts])
            lows = np.array([verdict.speedup_low or 0.0 for verdict in verdicts])
            highs = np.array([verdict.speedup_high or math.inf for verdict in verdicts])
            print(
                f"{task.name:20} {len(verdicts):6} {math.exp(logs.mean()):7.4f} "
                f"{logs.std(ddof=1) / math.sqrt(len(logs)):6.4f} {np.median((highs - lows) / 2):6.3f} "
                f"{((lows <= 1) & (highs >= 1)).mean():6.2f} {(lows > settings.win_threshold).sum():10}",
                flush=True,
            )
            _print_power(verdicts, settings, math.exp(logs.mean()))


def _rounds(most: int, seconds: float) -> Iterator[int]:
    """0, 1, ... until there were ``most`` or the seconds are over; at least two."""
    end = time.monotonic() + seconds
    for number in range(most):
        if number >= 2 and time.monotonic() > end:
            return
        yield number


def _print_power(verdicts: list[Verdict], settings: JudgeSettings, offset: float) -> None:
    pair_sd = math.sqrt(float(np.mean([_pair_sd(verdict, settings.confidence) ** 2 for verdict in verdicts])))
    pairs = settings.cuda_pairs if settings.device == "cuda" else settings.pairs
    rng = np.random.default_rng(0)
    for label, factor in (("as it is", 1.0), (f"times {offset:.3f}", offset)):
        power = [
            rates_of_spread(
                rng,
                pair_sd=pair_sd,
                true_speedup=true * factor,
                pairs=pairs,
                confidence=settings.confidence,
                win_threshold=settings.win_threshold,
            ).wins
            for true in POWER_AT
        ]
        shown = ", ".join(f"{share:.0%} at {true:.2f}" for share, true in zip(power, POWER_AT, strict=True))
        print(f"  pairs' s.d. {pair_sd:.4f}; power {label}: {shown}", flush=True)


def _pair_sd(verdict: Verdict, confidence: float) -> float:
    """The pairs' standard deviation s that an interval rests on: log(high / low) / 2 = t * s / sqrt(K)."""
    found = re.search(r"(\d+) process pairs", verdict.message)
    assert found and verdict.speedup_low and verdict.speedup_high, verdict.message
    pairs = int(found[1])
    half = math.log(verdict.speedup_high / verdict.speedup_low) / 2
    return half * math.sqrt(pairs) / float(stats.t.ppf(0.5 + confidence / 2, pairs - 1))


if __name__ == "__main__":
    main()
