"""The self-healing code agent: a task in plain English in, code whose tests were run out.

workflow.py, steps.py  the loop, its steps  verdict.py, inside/   what counts as a pass
replies.py             code out of a reply  guard.py              tests are not weakened
prompts.py, prompts/   what models are asked  demo.py             the scripted demo model
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.agents.code.records import Evaluation
    from holdfast.agents.code.workflow import evaluate_code

__all__ = ["Evaluation", "evaluate_code"]
__getattr__ = lazily(__name__, {"records": ["Evaluation"], "workflow": ["evaluate_code"]})
