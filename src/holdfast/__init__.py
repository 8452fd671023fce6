"""Holdfast: durable AI code agents on your own machines.

The public names. Each is loaded when it is first used, so that importing costs next to nothing
and a program that needs one layer does not wait for the others.
"""

from holdfast.lazy import lazily

__version__ = "0.1.0"

lazily(__name__)
