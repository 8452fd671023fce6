"""Small repos that look like real ones, made with git in a folder of the test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

GIT = {
    **os.environ,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env=GIT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make(folder: Path, files: Mapping[str, str]) -> Path:
    """A repo with these files, committed on `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, files)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


SLUGS = {
    "README.md": "# slugs\n\nMakes slugs of titles.\n",
    ".gitignore": "__pycache__/\n.env\n",
    "pyproject.toml": '[project]\nname = "slugs"\nversion = "0.3.0"\n\n[tool.pytest.ini_options]\n'
    'testpaths = ["tests"]\n',
    "src/slugs/__init__.py": 'from slugs.slug import slugify\n\n__all__ = ["slugify"]\n',
    "src/slugs/slug.py": '''"""Titles as they appear in addresses."""

import re


def slugify(title: str) -> str:
    """A title in lower case, with dashes between its words."""
    return re.sub(r"[^a-z0-9]", "-", title.lower())
''',
    "tests/test_slug.py": """import pytest

from slugs import slugify


@pytest.mark.parametrize(
    ("title", "slug"),
    [("Hello World", "hello-world"), ("a -- b", "a-b"), ("  trimmed!  ", "trimmed")],
)
def test_titles_become_slugs(title, slug):
    assert slugify(title) == slug


def test_digits_stay():
    assert slugify("Route 66") == "route-66"
""",
}
SLUGS_FIX = (
    "src/slugs/slug.py",
    '    return re.sub(r"[^a-z0-9]", "-", title.lower())',
    '    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")',
)

LEDGER = {
    "README.md": "# ledger\n",
    "ledger/__init__.py": "",
    "ledger/money.py": '''from decimal import ROUND_HALF_EVEN, Decimal


class Money:
    def __init__(self, amount, currency="EUR"):
        self.amount = Decimal(amount)
        self.currency = currency

    def __add__(self, other):
        return Money(self.amount + other.amount, self.currency)

    def __eq__(self, other):
        return (self.amount, self.currency) == (other.amount, other.currency)

    def split(self, parts):
        """Equal parts that add up to the whole."""
        each = (self.amount / parts).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
        return [Money(each, self.currency) for _ in range(parts)]
''',
    "ledger/account.py": """from ledger.money import Money


class Account:
    def __init__(self):
        self.entries = []

    def post(self, amount):
        self.entries.append(amount)

    def balance(self):
        total = Money(0)
        for entry in self.entries:
            total = total + entry
        return total
""",
    "tests/__init__.py": "",
    "tests/test_money.py": """import unittest

from ledger.account import Account
from ledger.money import Money


class MoneyTest(unittest.TestCase):
    def test_parts_add_up_to_the_whole(self):
        parts = Money("10.00").split(3)
        total = Money(0)
        for part in parts:
            total = total + part
        self.assertEqual(total, Money("10.00"))

    def test_currencies_do_not_mix(self):
        with self.assertRaises(ValueError):
            Money(1, "EUR") + Money(1, "USD")


class AccountTest(unittest.TestCase):
    def test_the_balance_is_the_sum(self):
        account = Account()
        account.post(Money("2.50"))
        account.post(Money("-1.00"))
        self.assertEqual(account.balance(), Money("1.50"))


if __name__ == "__main__":
    unittest.main()
""",
}
LEDGER_SPLIT = (
    "ledger/money.py",
    """        each = (self.amount / parts).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
        return [Money(each, self.currency) for _ in range(parts)]
""",
    """        each = (self.amount / parts).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
        rest = self.amount - each * (parts - 1)
        return [Money(each, self.currency)] * (parts - 1) + [Money(rest, self.currency)]
""",
)
LEDGER_ADD = (
    "ledger/money.py",
    "        return Money(self.amount + other.amount, self.currency)\n",
    """        if self.currency != other.currency:
            raise ValueError(f"{self.currency} and {other.currency} do not mix")
        return Money(self.amount + other.amount, self.currency)
""",
)

PLANETS = {
    "Makefile": "PY ?= python\n\n.PHONY: test\ntest:\n\t$(PY) check.py\n",
    "data/planets.csv": "name,moons\nEarth,1\nMars,2\nJupiter,95\n",
    "planets.py": """import csv


def load(path="data/planets.csv"):
    with open(path) as file:
        return {row["name"]: row["moons"] for row in csv.DictReader(file)}


def most_moons(planets):
    return max(planets, key=planets.get)
""",
    "check.py": """from planets import load, most_moons

planets = load()
assert planets["Earth"] == 1, planets["Earth"]
assert most_moons(planets) == "Jupiter"
print("ok")
""",
}
PLANETS_FIX = ("planets.py", 'row["moons"] for', 'int(row["moons"]) for')

CART = {
    "package.json": '{\n  "name": "cart",\n  "version": "1.0.0",\n  "private": true,\n'
    '  "scripts": { "test": "node --test" }\n}\n',
    ".gitignore": "node_modules/\n",
    "lib/cart.js": """'use strict';

function total(items, discount = 0) {
  const sum = items.reduce((all, item) => all + item.price * item.count, 0);
  return sum - sum * discount;
}

module.exports = { total };
""",
    "test/cart.test.js": """'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { total } = require('../lib/cart');

test('an empty cart costs nothing', () => {
  assert.strictEqual(total([]), 0);
});

test('a discount is a percentage', () => {
  assert.strictEqual(total([{ price: 50, count: 2 }], 10), 90);
});
""",
}
CART_FIX = ("lib/cart.js", "sum - sum * discount", "sum - (sum * discount) / 100")

DURATIONS = {
    "src/durations.mjs": """const UNITS = { s: 1, m: 60, h: 3600 };

export function parse(text) {
  const [, number, unit] = /^(\\d+)([smh])$/.exec(text);
  return Number(number) * UNITS[unit];
}
""",
    "src/durations.test.mjs": """import test from 'node:test';
import assert from 'node:assert/strict';
import { parse } from './durations.mjs';

test('minutes', () => assert.equal(parse('5m'), 300));
test('several units', () => assert.equal(parse('1h30m'), 5400));
test('nonsense is refused', () => assert.throws(() => parse('soon'), /no duration/));
""",
}
DURATIONS_FIX = """const UNITS = { s: 1, m: 60, h: 3600 };

export function parse(text) {
  if (!/^(\\d+[smh])+$/.test(text)) throw new Error(`${text} is no duration`);
  let total = 0;
  for (const [, number, unit] of text.matchAll(/(\\d+)([smh])/g)) {
    total += Number(number) * UNITS[unit];
  }
  return total;
}
"""
