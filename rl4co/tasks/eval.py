"""Import path of the evaluation; the code is in :mod:`rl4co.tasks.evaluate`."""

from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.methods import METHODS, EvalMethod

__all__ = ["METHODS", "EvalMethod", "evaluate_policy"]
