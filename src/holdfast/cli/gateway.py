"""`holdfast gateway serve`: the gateway's HTTP service."""

from __future__ import annotations

import argparse
import asyncio
import sys

from holdfast.cli import output


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    serve = verbs.add_parser("serve", help="serve stock OpenAI and Anthropic clients over HTTP")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=7421, help="0 takes any free one")
    serve.add_argument(
        "--open", action="store_true", help="ask for no key (loopback only, no web pages)"
    )
    serve.add_argument("--json", action="store_true", help="print the address as JSON")
    serve.set_defaults(handler=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    import uvloop

    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.service import server

    listener = server.bind(options.host, options.port)
    host, port = listener.getsockname()[:2]
    gateway = Gateway()
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def main() -> None:
        if options.json:
            output.show_json({"url": url, "openai_base_url": f"{url}/v1"})
            sys.stdout.flush()
        else:
            output.note(f"gateway at {url} (OpenAI clients: base_url={url}/v1)")
        await server.serve(gateway, listener, open_to_all=options.open)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0
