"""What a search shows while it runs: a live panel under the verdicts on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from actors.models import Models
    from actors.spending import Spending
    from archive.types import Record
    from cluster.optimize import Order


def _print(text: str) -> None:
    print(text, flush=True)


@dataclass
class View:
    """The state of the panel. ``say`` prints a line above it."""

    max_candidates: int
    budget_usd: float | None
    budget_seconds: float | None
    say: Callable[[str], None] = _print
    refresh: Callable[[], None] = lambda: None
    spending: Spending | None = None
    task: str = ""
    asked: int = 0
    best: Record | None = None
    statuses: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def start(self, task: str, models: Models) -> None:
        """A new task begins."""
        if not self.task:
            self.began = time.monotonic()  # models are ready now: the budget counts from here
        self.task, self.asked, self.best, self.statuses = task, 0, None, Counter()
        who = ", ".join(models.names) or "no model: templates, similar kernels and the sweep only"
        self.say(f"optimizing {task}: at most {self.max_candidates} candidates by {who}")

    def on_record(self, record: Record, asked: int) -> None:
        """Count and tell a record."""
        from cluster.judging import describe, status_name

        self.asked = asked
        self.statuses[status_name(record)] += 1
        confirmed = record.operator == "confirm"
        if record.verdict.is_correct and not confirmed and (self.best is None or record.score > self.best.score):
            self.best = record
        who = record.operator if confirmed else record.source
        how = "" if who == record.operator else f" {record.operator}"
        how = "" if record.source == "expert" or confirmed else how
        self.say(f"  {asked}/{self.max_candidates} {who}{how}: {describe(record.verdict)}")
        self.refresh()

    def panel(self) -> Table:
        """The panel's lines: best, statuses, cost, time left."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.ROUNDED, show_header=False, title=f"{self.task}: {self.asked}/{self.max_candidates}")
        for label, text in self.facts().items():
            table.add_row(label, Text(text))
        return table

    def facts(self) -> dict[str, str]:
        """What the panel says, by label."""
        best = "none correct yet"
        if self.best is not None:
            verdict = self.best.verdict
            best = f"{verdict.speedup:.2f}x [{verdict.speedup_low or 0:.2f}, {verdict.speedup_high or 0:.2f}]"
            best += f" {verdict.status} by {self.best.source} ({self.best.operator})"
        spent = self.spending.spent_usd if self.spending is not None else 0.0
        calls = self.spending.calls if self.spending is not None else ()
        failed = sum(call.outcome != "ok" for call in calls)
        cost = f"{spent:.4f} USD" + (f" of {self.budget_usd:g}" if self.budget_usd is not None else "")
        if calls:
            cost += f", {len(calls)} calls" + (f", {failed} failed and tried again" if failed else "")
        elapsed = time.monotonic() - self.began
        left = f"{elapsed / 60:.1f} min"
        if self.budget_seconds is not None:
            left += f" gone, {max(self.budget_seconds - elapsed, 0) / 60:.1f} min left"
        statuses = ", ".join(f"{count} {name}" for name, count in self.statuses.most_common()) or "none yet"
        return {"best so far": best, "verdicts": statuses, "cost": cost, "time": left}


@contextmanager
def open_view(order: Order) -> Iterator[View]:
    """A view that fits what stdout is."""
    view = View(order.max_candidates, order.budget_usd, order.budget_seconds)
    if not sys.stdout.isatty():
        yield view
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)

    class Panel:
        """Rendered anew at each refresh, so that the clock runs."""

        def __rich__(self) -> Any:
            return view.panel() if view.task else ""

    with Live(Panel(), console=console, refresh_per_second=2, transient=True) as live:
        view.say = lambda text: console.print(text, markup=False, soft_wrap=True)
        view.refresh = live.refresh
        yield view
