"""Installing packages in a sandbox from where this machine installs them.

    pip = await pip_network()
    async with await Sandbox.create(network=pip.network, env=pip.env) as sandbox:
        await sandbox.run("python", "-m", "pip", "install", "six")

Which registry that is, the machine's own pip and npm are asked; what their addresses carry of
users and passwords stays outside and is added to requests on the way.

access.py   what a sandbox needs of a registry       pages.py   where a registry keeps its files
pip.py      pip's settings                           npm.py     npm's settings
"""

from holdfast.sandbox.registries.access import Access
from holdfast.sandbox.registries.npm import npm_network
from holdfast.sandbox.registries.pip import pip_network

__all__ = ["Access", "npm_network", "pip_network"]
