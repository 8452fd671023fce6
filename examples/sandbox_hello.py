"""Run code in a sandbox: write files, run tests, keep a snapshot, start again from it.

It prints:

    sbx_…: shares the host's kernel, behind namespaces and a filter
    1 passed in …
    an endless loop: timed_out
    from the snapshot: […'slug.py', 'test_slug.py']
"""

import asyncio

from holdfast.sandbox import Sandbox, default_host

FILES = {
    "slug.py": "def slug(text):\n    return '-'.join(text.lower().split())\n",
    "test_slug.py": "from slug import slug\n\ndef test_slug():\n    assert slug('A b') == 'a-b'\n",
}


async def main() -> None:
    async with await Sandbox.create(timeout="1m", memory="256mb", backend="namespace") as sandbox:
        print(f"{sandbox.id}: {sandbox.record.isolation}")
        await sandbox.write_files(FILES)
        tests = await sandbox.run("python", "-m", "pytest", "-q")
        print(tests.stdout.splitlines()[-1])
        loop = await sandbox.run("python", "-c", "while True: pass", timeout=0.5)
        print("an endless loop:", loop.ended)
        snapshot = await sandbox.snapshot()
    async with await Sandbox.create(source=snapshot, backend="namespace") as again:
        print("from the snapshot:", [file.path for file in await again.list_files()])
    snapshot.delete()
    await default_host().aclose()


asyncio.run(main())
