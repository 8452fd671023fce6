"""One loop, its state in a file of its own making."""

import json
import os
from pathlib import Path

from support_ticket import Bank, Shop, World, mark, model


def load(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {"results": [], "agreed": False}


def save(path: Path, state: dict) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


async def answer(ticket: str) -> str:
    path = World.folder / "state.json"
    state = load(path)
    while True:
        if "pending" not in state:
            state["pending"] = model(state["results"])
            save(path, state)
        said = state["pending"]
        if "text" in said:
            return said["text"]
        if said["tool"] == "look_up":
            result = Shop().look_up(**said["arguments"])
        else:
            if not state["agreed"]:
                mark("asks")
                state["agreed"] = True
                save(path, state)
            result = Bank().refund(**said["arguments"])
        state["results"].append(result)
        del state["pending"]
        save(path, state)
