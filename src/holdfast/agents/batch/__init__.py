"""Batches: many tasks from a file, each a durable run of its own, found again by its key.

tasks.py     the lines of a file, checked        running.py   carrying them out, so many at once
results.py   what came of each, and the totals
"""

from holdfast.agents.batch.execution import Batch
from holdfast.agents.batch.results import Result, Totals, totals
from holdfast.agents.batch.tasks import BadLine, BatchTask, read

__all__ = ["BadLine", "Batch", "BatchTask", "Result", "Totals", "read", "totals"]
