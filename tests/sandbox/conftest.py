from sandbox.fixtures import backend, sandbox_state

__all__ = ["backend", "sandbox_state"]
