"""Temporal as the engine: the same workflows, carried out on a Temporal server.

Loaded by those who ask for it (`--engine temporal://…`), with the extra `holdfast[temporal]`.

- `server_address.py`: which server, namespace and task queue, and how to connect to it.
- `bridge.py`: the worker. The store is the front desk: runs are created, asked and steered there;
  the bridge starts a Temporal workflow for each, and passes on what is left in its mailbox.
- `hosted_run.py`: the one Temporal workflow, which drives a run of ours as a local worker would.
- `step_activity.py`: the one activity, an attempt of a step.
- `mirror.py`: each run's journal, copied to the store once Temporal has it.
"""
