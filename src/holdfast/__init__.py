"""Holdfast: durable AI code agents on your own machines."""

__version__ = "0.1.0"
