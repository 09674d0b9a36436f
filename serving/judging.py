"""One posted candidate to its verdict."""

from __future__ import annotations

from actors.types import JudgeJob
from archive.types import new_id
from judge.types import Candidate
from serving.generation import Answer
from serving.job_runner import task_of
from serving.messages import JudgeRequest, OptimizeRequest
from serving.shared_judges import Pool
from tasks.errors import TaskError
from warpsmith import WarpsmithError


def judge_answer(request: JudgeRequest, judges: Pool) -> Answer:
    """The verdict as the body, or one line of error: 422 where the task cannot be used, 503 where no judge can judge.

    Task and candidate are read here and run in the judge's sandbox only.
    """
    try:
        task = task_of(OptimizeRequest(task_name=request.task_name, task_source=request.task_source))
        job = JudgeJob(job_id=new_id(), task=task, candidate=Candidate(code=request.code))
        (result,) = judges.judge([job])
    except TaskError as error:
        return Answer(status=422, body={"error": " ".join(str(error).split())})
    except WarpsmithError as error:
        return Answer(status=503, body={"error": " ".join(str(error).split())})
    if result.task_error:
        return Answer(status=422, body={"error": " ".join(result.task_error.split())})
    # Infinities are no JSON: pydantic writes them as null.
    return Answer(status=200, body=result.verdict.model_dump(mode="json"))
