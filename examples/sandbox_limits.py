"""What a program can't do in a sandbox: use it up, stay, or reach the network.

It prints:

    memory: out_of_memory
    time: timed_out
    output: output_limit
    network: exited, it could connect: False
"""

import asyncio

from holdfast.sandbox import Sandbox, default_host

CONNECT = """
import socket
try:
    socket.create_connection(("192.0.2.1", 443), timeout=5)
    print(True)
except OSError:
    print(False)
"""


async def main() -> None:
    async with await Sandbox.create(memory="128mb", backend="namespace") as sandbox:
        bomb = await sandbox.run("python", "-c", "x = bytearray(1 << 30)\nfor i in x: pass")
        print("memory:", bomb.ended)
        loop = await sandbox.run("python", "-c", "while True: pass", timeout="1s")
        print("time:", loop.ended)
        talk = await sandbox.run("yes", max_output="1mb")
        print("output:", talk.ended)
        call = await sandbox.run("python", "-c", CONNECT)
        print(f"network: {call.ended}, it could connect: {call.stdout.strip()}")
    await default_host().aclose()


if __name__ == "__main__":
    asyncio.run(main())
