"""Make the pictures in docs/images: `python scripts/images.py`.

demo.svg is what `make demo` prints, from a real run; layers.svg is the architecture.
"""

import os
import re
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
SANS = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"

# --- the demo, as a terminal shows it ---

LINE, CHARACTER, MARGIN = 19, 8.43, 18
COLOURS = [
    (re.compile(r"^\$ kill"), "#ff7b72"),
    (re.compile(r"^\$"), "#e6edf3"),
    (re.compile(r"^ +✓"), "#7ee787"),
    (re.compile(r"^ +✗"), "#ff7b72"),
    (re.compile(r"^passed"), "#e6edf3"),
    (re.compile(r"[▇░]"), "#79c0ff"),
    (re.compile(r"completed|By the steps"), "#e6edf3"),
]


def terminal(text: str) -> str:
    """Text as a picture of a terminal."""
    lines = ["$ make demo", *text.rstrip().splitlines()]
    width = int(max(map(len, lines)) * CHARACTER + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    body = "".join(
        f'<text x="{MARGIN}" y="{MARGIN + 14 + place * LINE}" fill="{_colour(line)}" '
        f'textLength="{len(line) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(line)}</text>\n"
        for place, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="The output of make demo">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        f'<g font-family="{MONO}" font-size="14" xml:space="preserve">\n{body}</g>\n</svg>\n'
    )


def _colour(line: str) -> str:
    return next((colour for pattern, colour in COLOURS if pattern.search(line)), "#9198a1")


def demo() -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "examples/demo.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout


# --- the layers ---

BOX = 46
ROWS = [
    [
        ("cli", "one file per noun", True),
        ("server", "HTTP API, inspector", True),
        ("testing", "what users test with", True),
    ],
    [("agents", "ready-made agents", True)],
    [("loop", "the tool-calling loop", True)],
    [
        ("runtime", "durable execution", True),
        ("gateway", "models", True),
        ("sandbox", "isolation", True),
    ],
    [("store", "SQLite: journal, leases, mail", True)],
    [("records, errors, ids, clock, …", "small leaves", True)],
]


def layers() -> str:
    """The layers as boxes; imports go down only. What is to come is dashed."""
    width, gap = 720, 12
    parts: list[str] = []
    for row, boxes in enumerate(ROWS):
        each = (width - 2 * MARGIN - gap * (len(boxes) - 1)) / len(boxes)
        y = MARGIN + row * (BOX + gap)
        for column, (name, what, here) in enumerate(boxes):
            x = MARGIN + column * (each + gap)
            dashes = "" if here else ' stroke-dasharray="5 4"'
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{each:.0f}" height="{BOX}" rx="6" '
                f'fill="{"#ddf4ff" if here else "#ffffff"}" stroke="#0969da"{dashes}/>\n'
                f'<text x="{x + each / 2:.0f}" y="{y + 20}" text-anchor="middle" '
                f'font-weight="600">{escape(name)}</text>\n'
                f'<text x="{x + each / 2:.0f}" y="{y + 37}" text-anchor="middle" '
                f'font-size="12" fill="#59636e">{escape(what)}</text>\n'
            )
    height = 2 * MARGIN + len(ROWS) * (BOX + gap) + 10
    caption = "Imports go down only. Solid: here today. Dashed: to come."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="The layers of Holdfast">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n'
        f'<g font-family="{SANS}" font-size="15" fill="#1f2328">\n{"".join(parts)}'
        f'<text x="{width / 2:.0f}" y="{height - 14}" text-anchor="middle" font-size="12" '
        f'fill="#59636e">{caption}</text>\n</g>\n</svg>\n'
    )


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "layers.svg").write_text(layers(), encoding="utf-8")
    (IMAGES / "demo.svg").write_text(terminal(demo()), encoding="utf-8")
