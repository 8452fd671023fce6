"""The self-healing code agent: a task in plain English in, code whose tests were run out.

workflow.py, steps.py  the loop, its steps  verdict.py, inside/   what counts as a pass
replies.py             code out of a reply  guard.py              tests are not weakened
prompts.py, prompts/   what models are asked  demo.py             the scripted demo model
"""

from holdfast.lazy import lazily

lazily(__name__)
