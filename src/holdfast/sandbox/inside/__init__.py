"""The agent: what runs inside a sandbox, as its first process, for every local backend.

Standard library only. Everything here may be in the hands of hostile code, so the host
believes nothing it says beyond its own sandbox.
"""
