"""Ready-made agents, each a workflow on the layers below: code (the self-healing code agent)."""
