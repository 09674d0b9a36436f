"""A run that outlives its learner: a new one is started from the manifest, while engines and judges stay."""

from __future__ import annotations

from collections.abc import Callable

from actors.errors import LearnerLostError
from cluster.run import Run, running_reward


def keep_learning(run: Run, work: Callable[[Run], None]) -> None:
    """``work(run)``, again from the manifest whenever the learner was lost.

    What was judged in the step that was under way is in the archive and is not judged again. Without an update between
    them, ``run.learner_restarts`` losses in a row are one too many.

    Args:
        work: goes from where the run's state says to its end.

    Raises what ``work`` raises; LearnerLostError when restarts are used up, or the learner cannot be started again.
    """
    from cluster.progress import restore

    used, reached, lost = 0, run.state, False
    while True:
        try:
            if lost:
                restore(run)
            work(run)
            return
        except LearnerLostError as error:
            restart = getattr(run.session.learner, "restart", None)
            used = 0 if run.state != reached else used
            if restart is None or used >= run.config.run.learner_restarts:
                raise LearnerLostError(f"{error}: start again, the run continues from its last checkpoint") from None
            used, lost = used + 1, True
            # What is in memory may be ahead of what is on disk, and the statistics of rewards are.
            run.state = reached = run.folder.read_state()
            run.rewards = running_reward(run.config, run.state)
            run.warnings.append(str(error))
            run.say(f"warning: {error}: started again, {used} of {run.config.run.learner_restarts}")
            restart()
