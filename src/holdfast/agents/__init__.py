"""Ready-made agents, each a module of its own."""
