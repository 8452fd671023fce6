"""Searches files for a regular expression, inside the sandbox.

Reads {"pattern", "root", "glob", "base"} as JSON from stdin; prints `path:line: text`. Binary
and very large files are passed over, links are not followed.
"""

import fnmatch
import json
import os
import re
import sys

SKIPPED = {".git", "node_modules", ".venv", "venv", "__pycache__", ".pytest_cache"}
MOST_FOUND = 200
MOST_BYTES = 4 * 1024 * 1024
MOST_LINE = 300


def files(root: str) -> list[str]:
    if os.path.isfile(root):
        return [root]
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        found += [os.path.join(folder, name) for name in sorted(names)]
    return found


def wanted(path: str, glob: str) -> bool:
    if not glob:
        return True
    pattern = glob.replace("**/", "*")
    return fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(os.path.basename(path), pattern)


def lines_of(path: str) -> list[str]:
    if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:
        return []
    with open(path, "rb") as file:
        raw = file.read()
    return [] if b"\0" in raw[:8192] else raw.decode("utf-8", "replace").splitlines()


def main() -> int:
    asked = json.load(sys.stdin)
    try:
        pattern = re.compile(asked["pattern"])
    except re.error as error:
        print(f"that is no regular expression: {error}", file=sys.stderr)
        return 2
    count = 0
    for path in files(asked["root"]):
        name = os.path.relpath(path, asked["base"])
        if not wanted(name, asked["glob"]):
            continue
        try:
            lines = lines_of(path)
        except OSError:
            continue
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                count += 1
                if count > MOST_FOUND:
                    print(f"… more than {MOST_FOUND} matches: narrow the search")
                    return 0
                print(f"{name}:{number}: {line[:MOST_LINE]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
