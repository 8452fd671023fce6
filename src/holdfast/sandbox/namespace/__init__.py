"""The `namespace` backend: Linux namespaces, seccomp and cgroups, with nothing to install.

    view.py       the filesystem every sandbox sees, built once per host process
    launcher.py   builds the view, starts the fork server, cleans up if we are killed
    server.py     the fork server: one request, one sandbox
    enter.py      what a forked child does to become one
    backend.py    the host's side
    cgroups.py    limits on processes, memory and CPU, versions 1 and 2
    uids.py       a kernel user per sandbox
    linux.py, seccomp.py, packet_capture.py   the kernel

`launcher`, `view`, `server`, `enter` and below run in processes of their own, started with an
empty environment, and import nothing but the standard library and `holdfast.sandbox.inside`.
"""
