"""The evaluator actor: a judge that stays, with its zygote.

The judge forks its zygote from the thread that makes it, and the zygote dies with that thread (PR_SET_PDEATHSIG goes
by thread). A plain synchronous Ray actor runs all its methods on the main thread of its process, which lives as long
as the process does; an async or threaded actor would not do, so ``start`` checks it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from actors.errors import ActorError
from actors.member import Birth, Member
from judge.settings import JudgeSettings
from judge.types import Candidate, Verdict
from tasks.types import Task

if TYPE_CHECKING:
    from judge.api import Judge


class EvaluatorActor(Member):
    """See the module's docstring."""

    _judge: Judge | None = None

    def start(self, settings: JudgeSettings) -> Birth:
        """Makes the judge ready (a few seconds: the zygote imports torch).

        Raises:
            SandboxError: ``require_sandbox`` is set and an isolation layer is missing.
            ActorError: not on the main thread.
        """
        from judge.api import Judge

        if threading.current_thread() is not threading.main_thread():
            raise ActorError(
                "an evaluator must be a plain synchronous actor: its judge dies with the thread it began in"
            )
        self._judge = Judge(settings).__enter__()
        return self.birth()

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        """The verdict of one candidate.

        Raises:
            TaskError: the task's own code fails.
            SandboxError: an isolation layer is missing.
        """
        assert self._judge is not None, "start comes first"
        return self._judge.judge(task, candidate)

    def close(self) -> None:
        """Ends the judge's processes."""
        if self._judge is not None:
            self._judge.close()
            self._judge = None
