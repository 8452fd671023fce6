"""Small programs whose behaviour must be the same inside and outside: what they print, how they end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    name: str
    source: str
    stdin: str = ""
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict, hash=False)
    how: tuple[str, ...] = ("main.py",)
    """The words after `python`."""


def _each(name: str, template: str, values: list[object], **options: object) -> list[Program]:
    return [
        Program(f"{name} {number}", template.replace("VALUE", str(value)), **options)  # type: ignore[arg-type]
        for number, value in enumerate(values)
    ]


ERRORS = (
    "ArithmeticError AssertionError AttributeError BlockingIOError BufferError ChildProcessError "
    "ConnectionResetError EOFError FileNotFoundError FloatingPointError ImportError IndexError "
    "InterruptedError IsADirectoryError KeyError LookupError MemoryError ModuleNotFoundError NameError "
    "NotImplementedError OSError OverflowError PermissionError RecursionError ReferenceError "
    "RuntimeError StopIteration SyntaxError SystemError TimeoutError TypeError ValueError Warning "
    "ZeroDivisionError BaseException Exception GeneratorExit ProcessLookupError TabError"
).split()

TEXTS = [
    "'héllo wörld'",
    "'日本語'",
    "'😀' * 3",
    "'\\u202e\\u0000x'",
    "'a\\r\\nb'",
    "'\\x1b[31mred\\x1b[0m'",
    "''",
    "' ' * 70000",
    "'x\\n' * 5000",
    "chr(0x10ffff)",
    "'\\udcff'.encode(errors='surrogateescape')",
]

EXPRESSIONS = [
    "2 ** 1000",
    "sum(range(10**5))",
    "sorted('hello world')",
    "[x * x for x in range(20)]",
    "{k: v for k, v in zip('abc', range(3))}",
    "1 / 3",
    "0.1 + 0.2",
    "10 ** 400 % 97",
    "complex(1, 2) ** 2",
    "hash(12345)",
    "'%05.2f|%x' % (3.14159, 255)",
    "f'{1234567.891:,.2f}'",
    "b'abc'.hex()",
    "divmod(-7, 2)",
    "round(2.5), round(3.5)",
    "min([3, 1, 2], key=lambda v: -v)",
    "list(map(str.upper, 'abc'))",
    "type(1).__mro__",
    "__name__",
    "__import__('sys').version_info[:2]",
    "__import__('math').factorial(50)",
    "any([0, '', None])",
    "__import__('json').dumps({'b': [1, None, True], 'a': 'ü'}, sort_keys=True)",
    "float('inf') - float('inf')",
    "__import__('re').findall(r'(\\w)(\\d)', 'a1b2')",
    "__import__('random').Random(42).random()",
    "__import__('hashlib').sha256(b'x').hexdigest()",
    "__import__('decimal').Decimal('0.1') * 3",
    "__import__('fractions').Fraction(3, 9)",
    "__import__('datetime').date(2024, 2, 29).isoformat()",
    "__import__('base64').b64encode(b'hello')",
    "__import__('zlib').crc32(b'hello')",
    "__import__('struct').pack('>I', 1)",
    "__import__('textwrap').fill('a b ' * 30, 20)",
    "__import__('itertools').__name__",
    "repr(object)[:7]",
    "__import__('collections').Counter('mississippi').most_common(2)",
    "__import__('string').ascii_lowercase",
    "__import__('os').getcwd().count('/') >= 1",
    "__import__('statistics').mean([1, 2, 3, 4])",
    "open.__module__",
    "__import__('os').environ['LANG']",
    "__import__('sys').stdout.encoding, __import__('sys').stdout.errors",
    "__import__('sys').stderr.errors, __import__('sys').stdin.encoding",
    "__import__('sys').flags.isolated",
    "__import__('sys').argv",
    "__import__('sys').stdout.isatty()",
    "__import__('sys').getrecursionlimit()",
    "__import__('locale').getlocale()",
    "__import__('signal').getsignal(2).__name__",
    "__file__.endswith('main.py')",
    "__import__('sys').path[0] == __import__('os').getcwd()",
    "__spec__, __package__, __doc__, __cached__",
    "__import__('os').umask(0o22)",
    "__import__('signal').getsignal(__import__('signal').SIGPIPE)",
    "__import__('threading').current_thread().name",
    "__import__('gc').isenabled()",
    "dir()[:4]",
    "__import__('sys').stdout.line_buffering, __import__('sys').stderr.line_buffering",
    "__loader__.__class__.__name__",
    "__import__('tempfile').gettempdir()",
    "__import__('os').path.expanduser('~').startswith('/')",
    "__debug__",
]

MODULES = r"""
print(__import__('unittest').mock if False else 'x')
import asyncio; print(asyncio.run(asyncio.sleep(0, 'done')))
import asyncio\nasync def f(n): await asyncio.sleep(0.01); return n\nasync def m(): return await asyncio.gather(*(f(i) for i in range(20)))\nprint(asyncio.run(m()))
import asyncio\nasync def m():\n async with asyncio.TaskGroup() as g:\n  g.create_task(asyncio.sleep(0)); g.create_task(boom())\nasync def boom(): raise ValueError('in a task')\nasyncio.run(m())
import asyncio\nasync def m():\n p = await asyncio.create_subprocess_exec('echo', 'sub', stdout=-1); print(await p.communicate())\nasyncio.run(m())
import asyncio\nasync def m():\n async with asyncio.timeout(0.05): await asyncio.sleep(9)\nasyncio.run(m())
import asyncio\nasync def h(r, w): w.write(await r.read(3)); w.close()\nasync def m():\n s = await asyncio.start_server(h, '127.0.0.1', 0)\n p = s.sockets[0].getsockname()[1]\n r, w = await asyncio.open_connection('127.0.0.1', p); w.write(b'abc'); print(await r.read())\n w.close(); s.close()\nasyncio.run(m())
import threading\nr = []\nts = [threading.Thread(target=r.append, args=(i,)) for i in range(10)]\n[t.start() for t in ts]; [t.join() for t in ts]; print(sorted(r))
import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start(); print('main done')
import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print('daemon left')
import threading\nthreading.Thread(target=lambda: 1 / 0, name='T').start()
import concurrent.futures as c\nwith c.ThreadPoolExecutor(4) as p: print(list(p.map(lambda x: x * x, range(10))))
import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n with m.get_context('fork').Pool(2) as p: print(p.map(f, range(8)))
import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n with m.get_context('spawn').Pool(2) as p: print(p.map(f, range(4)))
import multiprocessing as m\ndef f(q): q.put('from child')\nif __name__ == '__main__':\n q = m.Queue(); p = m.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)
import multiprocessing as m, sys\ndef f(): sys.exit(7)\nif __name__ == '__main__':\n p = m.get_context('forkserver').Process(target=f); p.start(); p.join(); print(p.exitcode)
from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=10); m.buf[0] = 7; print(m.buf[0]); m.close(); m.unlink()
import sqlite3\nc = sqlite3.connect('x.db'); c.execute('create table t(a)'); c.executemany('insert into t values(?)', [(i,) for i in range(5)]); c.commit(); print(c.execute('select sum(a) from t').fetchone())
import sqlite3\nsqlite3.connect(':memory:').execute('select * from nothing')
import subprocess; print(subprocess.run(['sh', '-c', 'echo out; exit 3'], capture_output=True).returncode)
import subprocess; subprocess.run(['false'], check=True)
import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', 'print(1 + 1)']))
import subprocess; print(subprocess.run('cat', input=b'through', stdout=-1).stdout)
import os\nr, w = os.pipe()\nif os.fork() == 0: os.write(w, b'kid'); os._exit(0)\nos.wait(); print(os.read(r, 9))
import os; print('buffered'); os.write(1, b'direct\\n')
import os, sys; print('flushed'); sys.stdout.flush(); os.write(1, b'direct\\n'); print('err', file=sys.stderr)
import sys; sys.stdout.write('no newline')
import sys; sys.stdout.close(); sys.stdout = None
import sys; sys.stderr.write('partial'); sys.exit(2)
import atexit; atexit.register(print, 'first in last out'); atexit.register(print, 'second'); print('body')
import atexit; atexit.register(lambda: 1 / 0); print('body')
import atexit, sys; atexit.register(print, 'still'); sys.exit(5)
class A:\n def __del__(self): print('deleted')\na = A(); print('body')
class A:\n def __del__(self): print('deleted in cycle')\na = A(); a.me = a; del a; print('body')
class A:\n def __del__(self): raise ValueError('in del')\na = A(); del a; print('on')
import weakref\nclass A: pass\na = A(); weakref.finalize(a, print, 'finalised'); print('body')
import warnings; warnings.warn('careful'); print('on')
import warnings; warnings.simplefilter('error'); warnings.warn('now an error')
import logging; logging.warning('to stderr'); logging.info('not shown'); print('x')
import contextlib\n@contextlib.contextmanager\ndef c():\n print('in')\n try: yield 1\n finally: print('out')\nwith c() as v: print(v); raise KeyError('k')
def g():\n try: yield 1\n finally: print('closed')\nx = g(); print(next(x))
def f(n): return 1 if n == 0 else n * f(n - 1)\nprint(len(str(f(900))))
def f(): f()\nf()
import sys; sys.setrecursionlimit(5000)\ndef f(n): return n and f(n - 1)\nprint(f(4000))
x = {}\nprint(x['missing'])
import sys; sys.excepthook = lambda t, v, tb: print('hooked', t.__name__); 1 / 0
try: 1 / 0\nexcept ZeroDivisionError as e: raise ValueError('second') from e
try: 1 / 0\nexcept ZeroDivisionError: raise ValueError('during')
raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])
e = ValueError('noted'); e.add_note('a note'); raise e
class Custom(Exception):\n def __str__(self): return 'as text'\nraise Custom()
def outer():\n def inner(): raise RuntimeError('deep')\n inner()\nouter()
exec('1 +')
eval('unknown_name')
import nothing_of_this_name
from os import nothing_of_this_name
import helper; print(helper.VALUE, helper.__name__)
import package.part as p; print(p.where())
import helper; helper.fail()
print(open('data.txt').read())
open('made.txt', 'w').write('x'); print(open('made.txt').read())
print(open('/definitely/not/there').read())
import json; json.loads('{')
import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass P:\n x: int\np = P(1); print(p); p.x = 2
import enum\nclass C(enum.Enum): A = 1\nprint(C.A, C(1)); C(9)
match [1, 2, 3]:\n case [a, *rest]: print(a, rest)
assert 1 == 2, 'one is not two'
assert [1, 2] == [1, 3]
import unittest\nclass T(unittest.TestCase):\n def test_a(self): self.assertEqual(1, 1)\n def test_b(self): self.skipTest('why')\nunittest.main(verbosity=0, argv=['x'])
print(input('prompt> ')); print(input())
import sys; print(sys.stdin.read().upper())
import sys; print(sum(int(l) for l in sys.stdin if l.strip().isdigit()))
print(input(), input(), input())
import os, signal; os.kill(os.getpid(), signal.SIGTERM)
import os, signal; os.kill(os.getpid(), signal.SIGKILL)
import os; os.abort()
import os, signal; signal.signal(signal.SIGUSR1, lambda *a: print('handled')); os.kill(os.getpid(), signal.SIGUSR1)
import os, signal; os.kill(os.getpid(), signal.SIGINT); print('never')
import signal, time; signal.signal(signal.SIGALRM, lambda *a: 1 / 0); signal.setitimer(0, 0.05); time.sleep(5)
import ctypes; ctypes.string_at(0)
raise KeyboardInterrupt
raise SystemExit
import time, os; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); print(time.localtime(0).tm_hour)
import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0] == 0)
import sys; print(sys.orig_argv[1:])
import runpy; runpy.run_path('helper.py')
import faulthandler; faulthandler.enable(); print('ok')
import inspect\ndef f(): return inspect.currentframe().f_back.f_code.co_name\nprint(f())
import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()
import sys\ndef t(f, e, a): return t\nsys.settrace(t); print('traced')
import os; print(sorted(os.listdir('.')))
import pathlib; print([p.name for p in sorted(pathlib.Path('package').iterdir()) if p.suffix])
import csv, io; w = csv.writer(o := io.StringIO()); w.writerow(['a', 'b,c', 'd"e']); print(o.getvalue())
import heapq, bisect; h = [3, 1, 2]; heapq.heapify(h); print(heapq.heappop(h), bisect.bisect([1, 2, 3], 2))
import zipfile; z = zipfile.ZipFile('z.zip', 'w'); z.writestr('a', 'b'); z.close(); print(zipfile.ZipFile('z.zip').read('a'))
import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))
import http.server, threading, urllib.request\ns = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\nthreading.Thread(target=s.handle_request).start()\nprint(urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/data.txt').read())
import tempfile, os; f = tempfile.NamedTemporaryFile(); f.write(b'x'); f.flush(); print(os.path.getsize(f.name))
import os; os.mkdir('d'); os.rename('d', 'e'); os.rmdir('e'); os.symlink('a', 'l'); print(os.readlink('l'))
import fcntl; f = open('lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('locked')
import mmap; m = mmap.mmap(-1, 100); m[:3] = b'abc'; print(m[:3])
import select, os; r, w = os.pipe(); os.write(w, b'x'); print(select.select([r], [], [], 1)[0] == [r])
import pty, os; m, s = pty.openpty(); os.write(s, b'tty'); print(os.read(m, 3), os.isatty(s))
import pickle; print(pickle.loads(pickle.dumps({'a': [1, (2,)]})))
import typing; print(typing.get_type_hints(lambda: 0))
import difflib; print(''.join(difflib.unified_diff(['a\\n'], ['b\\n'])))
import queue, threading\nq = queue.Queue()\nthreading.Thread(target=q.put, args=(1,)).start(); print(q.get(timeout=2))
import copy; a = [[1]]; b = copy.deepcopy(a); b[0][0] = 2; print(a, b)
print(*range(3), sep='-', end='!\\n', flush=True)
import sys; sys.stdout.reconfigure(encoding='latin-1'); print('ü')
import sys; sys.stdout.buffer.write(bytes(range(256)))
print('\\udcff')
# -*- coding: latin-1 -*-\nprint('plain')
from __future__ import annotations\ndef f(x: Undefined): pass\nprint(f.__annotations__)
x: int = 1; print(__annotations__)
lambda: (yield)\nprint('fine')
""".strip().splitlines()

FILES = {
    "helper.py": "VALUE = 42\ndef fail():\n    raise RuntimeError('in a helper')\n",
    "package/__init__.py": "",
    "package/part.py": "def where():\n    return __name__\n",
    "package/__main__.py": "import sys\nprint('as a module', __name__, sys.argv[1:])\n",
    "data.txt": "the data\n",
    "broken.py": "def f(:\n    pass\n",
    "test_small.py": "def test_good():\n    assert 1 + 1 == 2\n\n\ndef test_bad():\n    assert [1] == [2]\n",
}


def programs() -> list[Program]:
    lines = [re.sub(r"(?<!\\)\\n", "\n", line).replace("\\\\", "\\") for line in MODULES]
    return [
        *_each("error", "raise VALUE('what')", list(ERRORS)),
        *_each(
            "exit",
            "import sys\nprint('before')\nsys.exit(VALUE)",
            [0, 1, 2, 42, 127, 128, 255, 256, -1, "None", "'text'", "[1]", "True", "2.5", "''"],
        ),
        *_each("hard exit", "import os\nos._exit(VALUE)", [0, 3, 255]),
        *_each("text", "print(VALUE)", list(TEXTS)),
        *_each(
            "binary",
            "import sys\nsys.stdout.buffer.write(VALUE)",
            ["bytes(range(256)) * 50", "b'\\x00' * 1000", "b'\\xff\\xfe'", "b''"],
        ),
        *_each("expression", "print(VALUE)", list(EXPRESSIONS)),
        *[Program(f"program {n}", line, stdin="one\n2\n3\n") for n, line in enumerate(lines)],
        Program(
            "code",
            "",
            how=("-c", "import sys; print(sys.argv, __name__); 1 / 0"),
            arguments=("a", "b"),
        ),
        Program("code with an error", "", how=("-c", "x = (")),
        Program("module", "", how=("-m", "package"), arguments=("x",)),
        Program(
            "module of the library", "", how=("-m", "json.tool", "--compact"), stdin='{"a": [1, 2]}'
        ),
        Program("no such module", "", how=("-m", "no_such_module")),
        Program("broken file", "", how=("broken.py",)),
        Program("no such file", "", how=("no_such_file.py",)),
        Program("file in a folder", "", how=("package/part.py",)),
        Program(
            "absolute arguments",
            "import sys; print(sys.argv)",
            arguments=("-x", "--", "a b", "ü", ""),
        ),
        Program("optimised", "assert False, 'gone'\nprint('optimised')", how=("-O", "main.py")),
        Program("isolated", "import sys; print(sys.flags.isolated)", how=("-I", "main.py")),
        Program("unbuffered", "import os; print('a'); os.write(1, b'b')", how=("-u", "main.py")),
        Program(
            "warnings as errors",
            "import warnings; warnings.warn('x')",
            how=("-W", "error", "main.py"),
        ),
        Program("from standard input", "", how=("-",), stdin="print('typed')\n1 / 0\n"),
        Program("version", "", how=("--version",)),
    ]
