"""The public names of this package and where each is defined; `holdfast.lazy` reads this file."""

from holdfast.agents.code.records import Evaluation as Evaluation
from holdfast.agents.code.workflow import evaluate_code as evaluate_code
