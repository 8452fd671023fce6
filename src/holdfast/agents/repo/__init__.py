"""The repo agent: a git repo and a task in, a verified patch out.

workflow.py          the run and its tries        checkout.py          the repo copied
steps.py, tools.py   what is durable              workspace.py         files in a sandbox
verdict.py           what counts as a pass        patches.py           checked and applied
external_agents.py   agents other than ours       test_detection.py    how tests are run
"""

from holdfast.lazy import lazily

lazily(__name__)
