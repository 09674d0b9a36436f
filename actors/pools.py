"""The pools and the learner's client, under one name. See the modules they come from."""

from actors.evaluator_pool import EvaluatorPool
from actors.learner_client import LearnerClient
from actors.rollout_pool import RolloutPool

__all__ = ["EvaluatorPool", "LearnerClient", "RolloutPool"]
