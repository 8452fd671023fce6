"""Ready-made agents, each a workflow on the layers below.

`code`: the self-healing code agent. `support`: answers customers, with a manager in the loop.
`repo`: a coding agent on a git repo. `batch`: many tasks from a file.
"""
