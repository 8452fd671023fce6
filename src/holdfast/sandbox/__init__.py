"""Isolated execution of code nobody has read. `Sandbox` is the way in.

sandbox.py     what callers use            commands.py, files.py    what it does inside
command.py, results.py   a command and its end     snapshots.py   snapshots
host.py        this process as a host      network.py, spec.py      what may be asked
base.py        the seam to backends        namespace/, gvisor.py, microvm.py
inside/        the agent in each sandbox   egress/                  the way out, host-side
observer.py, recording.py   who is told    registries/              where packages come from
"""

from holdfast.lazy import lazily

lazily(__name__)
