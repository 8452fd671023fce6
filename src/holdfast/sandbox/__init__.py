"""Isolated execution of code nobody has read. `Sandbox` is the way in.

sandbox.py     what callers use            command.py, files.py     what it does inside
host.py        this process as a host      network.py, spec.py      what may be asked
base.py        the seam to backends        namespace/, gvisor.py, microvm.py
inside/        the agent in each sandbox   egress/                  the way out, host-side
snapshots.py   snapshots                   control.py               sandboxes of other processes
recording.py   observers, the store        registries.py            where packages come from
"""

from holdfast.lazy import lazily

lazily(__name__)
