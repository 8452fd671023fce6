"""The self-healing code agent: a task in plain English in, code whose tests were run out.

workflow.py, steps.py   the loop, its steps     verdict.py, isolated.py  what counts as a pass
replies.py              code out of a reply     test_strength.py         tests are not weakened
languages.py            what differs by language  inside/                runs in the sandboxes
toolchain.py            packages in a snapshot  demo.py                  the scripted demo model
"""

from holdfast.lazy import lazily

lazily(__name__)
