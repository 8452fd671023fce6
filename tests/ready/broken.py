"""The healthy project, broken in exactly one point each: what is replaced or added."""

import shutil
from pathlib import Path

from ready.examining import HEALTHY

Edit = tuple[str, str, str]
"""File, what is replaced (nothing: the text is added at the end), and what by."""

_FLOW = '\n@workflow(timeout="1h", on_failure=report_failure)\n'
_CREATE = '    async with await Sandbox.create(timeout="1m", memory="256mb") as sandbox:\n'

STATIC: dict[str, list[Edit]] = {
    "HF01": [
        (
            "desk.py",
            "",
            '\nimport threading\n\n@step(timeout="1s")\nasync def hold(lock: threading.Lock) -> None: ...\n',
        )
    ],
    "HF03": [
        (
            "desk.py",
            "",
            f'\nimport sqlite3\n\nDB = sqlite3.connect(":memory:")\n{_FLOW}async def count() -> int:\n    return DB.total_changes\n',
        )
    ],
    "HF04": [
        (
            "desk.py",
            "",
            f"\nfrom time import time as clock\n\ndef late() -> float:\n    return clock()\n{_FLOW}async def wake() -> float:\n    return late()\n",
        )
    ],
    "HF06": [
        ("desk.py", '@step(timeout="30s")', "@step"),
        ("holdfast.toml", "step_timeout = 600\n", ""),
    ],
    "HF07": [
        (
            "desk.py",
            '    if not told:\n        return Answer(f"closed after {length} characters")\n    return Answer(str(told.payload))',
            '    return Answer(f"closed after {length} characters")',
        )
    ],
    "HF08": [
        (
            "desk.py",
            "",
            f'\nfrom holdfast import sleep\n{_FLOW}async def tick() -> None:\n    while True:\n        await sleep("1d")\n',
        )
    ],
    "HF09": [("holdfast.toml", '"anthropic/claude-sonnet-4.6" = ["openai/gpt-5.2"]\n', "")],
    "HF10": [("desk.py", '@workflow(timeout="3d", ', "@workflow(")],
    "HF11": [
        (
            "desk.py",
            _CREATE,
            '    sandbox = await Sandbox.create(timeout="1m", memory="256mb")\n    if sandbox:\n',
        )
    ],
    "HF14": [("desk.py", 'memory="256mb"', 'memory="256mb", network=["*.com"]')],
    "HF15": [("desk.py", 'memory="256mb"', 'memory="256mb", env={"SHOP_API_KEY": "abc"}')],
    "HF16": [("holdfast.toml", 'min_isolation = "namespace"\n', "")],
    "HF17": [("desk.py", "idempotent=False, ", "")],
    "HF18": [
        ("desk.py", "CHAT.post(words, step_context().idempotency_key)", 'CHAT.post(words, "none")')
    ],
    "HF19": [("desk.py", ', needs_approval=lambda args: True, approval_timeout="24h",', ",")],
    "HF20": [("desk.py", 'answer.options(key=f"ticket-{id}")', "answer")],
    "HF21": [("desk.py", "", '\nimport openai\n\nclient = openai.OpenAI(api_key="any")\n')],
    "HF22": [("desk.py", ", on_failure=report_failure)\nasync def answer", ")\nasync def answer")],
    "HF23": [("holdfast.toml", "redact = ['\\b\\d{13,19}\\b']\n", "")],
    "HF28": [("holdfast.toml", '[retention]\nkeep = "90d"\n', "")],
}

BASELINE: dict[str, tuple[str, str]] = {
    "step_timeout = 600\n": ("HF06", "step_timeout"),
    '[[profiles.prod.gateway.budgets]]\nper = "day"\nusd = 50\n': ("HF08", "day"),
    "redact = ['\\b\\d{13,19}\\b']\n": ("HF23", "redact"),
    'min_isolation = "namespace"\n': ("HF16", "min_isolation"),
    'keep_records = "30d"\n': ("HF28", "keep_records"),
    "require_token = true\n": ("HF16", "require_token"),
    '[retention]\nkeep = "90d"\n': ("HF28", "retention"),
    'backups = "backups"\n': ("HF28", "backups"),
    "egress = []\n": ("HF14", "egress"),
}
"""Each line of the production baseline: what points to it when it is gone."""


def make(folder: Path, edits: list[Edit]) -> Path:
    shutil.copytree(HEALTHY, folder, ignore=shutil.ignore_patterns("__pycache__", ".holdfast"))
    edit(folder, edits)
    return folder


def edit(folder: Path, edits: list[Edit]) -> None:
    for file, old, new in edits:
        path = folder / file
        text = path.read_text()
        assert not old or text.count(old) >= 1, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new) if old else text + new)
