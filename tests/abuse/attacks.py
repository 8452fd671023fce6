"""Attacks as small programs. Each prints `won` if it succeeds, and is first let succeed outside.

`{secret}` is a file of the host's with a token in it, `{pid}` a process of the host's,
`{victim}` one that may be killed, `{port}` a port on the host's loopback, `{abstract}` the name of
an abstract socket, `{socket}` a socket's path, `{shm}` the key of shared memory, `{folder}` the
folder the secret is in, `{token}` the token itself.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = """
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def won():
    print("won", flush=True)
def won_if(condition):
    if condition: won()
def reaches(number, *arguments, past=()):
    "Whether a call is let through: it works, or fails only at what comes after permission."
    try:
        call(number, *arguments)
        return True
    except OSError as error:
        return error.errno in past
"""


@dataclass(frozen=True)
class Attack:
    name: str
    code: str
    root: bool = False
    """Succeeds outside for root only."""
    lacking: bool = False
    """Not every kernel, and not every root, can do this: void where outside can't either."""
    not_gvisor: bool = False
    """Harmless in gVisor, whose kernel answers it by itself."""


def _a(name: str, code: str, **options: bool) -> Attack:
    return Attack(name, code, **options)


FILES = [
    _a("read a file by its path", "won_if('{token}' in open('{secret}').read())"),
    _a(
        "read through proc self root", "won_if('{token}' in open('/proc/self/root{secret}').read())"
    ),
    _a(
        "read through a thread's root",
        "won_if('{token}' in open(f'/proc/self/task/{{os.getpid()}}/root{secret}').read())",
    ),
    _a(
        "read through the folder above", "won_if('{token}' in open('../' * 40 + '{secret}').read())"
    ),
    _a(
        "read through proc self cwd",
        "won_if('{token}' in open('/proc/self/cwd/' + '../' * 40 + '{secret}').read())",
    ),
    _a("read through a link", "os.symlink('{secret}', 'l'); won_if('{token}' in open('l').read())"),
    _a(
        "read through a link to its folder",
        "os.symlink('{folder}', 'd'); won_if('{token}' in open('d/secret').read())",
    ),
    _a(
        "hard-link a file of the host's",
        "os.link('{secret}', '{folder}/hard'); won_if('{token}' in open('{folder}/hard').read())",
    ),
    _a("list the folder of a file", "won_if('secret' in os.listdir('{folder}'))"),
    _a("see a file with stat", "won_if(os.stat('{secret}').st_size)"),
    _a("write into a folder of the host's", "open('{folder}/left', 'w').write('x'); won()"),
    _a("change a file of the host's", "open('{secret}', 'a').write(''); won()"),
    _a("read the password file", "won_if(':' in open('/etc/shadow').read())", root=True),
    _a(
        "read the home of root",
        "won_if(os.listdir('/root/'))  if os.path.isdir('/root/.cache') or "
        "os.path.exists('/root/.bashrc') else None",
        root=True,
    ),
    _a("read a package of the host's environment", "import hypothesis; won()"),
    _a("read the source tree of these tests", "won_if(os.path.exists('{here}'))"),
    _a("read the state folder", "won_if(os.listdir('{state}'))"),
    _a(
        "read the disk itself",
        "d = os.stat('{secret}').st_dev; os.mknod('{folder}/disk', 0o60600, d); "
        "won_if(os.read(os.open('{folder}/disk', os.O_RDONLY), 512))",
        lacking=True,
        root=True,
    ),
    _a(
        "make a device node in the workspace",
        "os.mknod('dev-node', 0o20600, os.makedev(1, 5)); "
        "won_if(os.read(os.open('dev-node', os.O_RDONLY), 4))",
        not_gvisor=True,
        root=True,
    ),
    _a(
        "open a file by its handle",
        """
import ctypes
class H(ctypes.Structure): _fields_ = [('n', ctypes.c_uint), ('t', ctypes.c_int), ('b', ctypes.c_ubyte * 128)]
h = H(128); m = ctypes.c_int()
path = '{secret}' if os.path.exists('{secret}') else '/etc/passwd'
call(303, -100, path.encode(), ctypes.byref(h), ctypes.byref(m), 0)
call(304, os.open(path.rsplit('/', 1)[0], os.O_RDONLY), ctypes.byref(h), 0)
won()""",
        root=True,
    ),
    _a(
        "open the memory of the machine",
        "os.open('/dev/mem', os.O_RDONLY); won()",
        lacking=True,
        root=True,
    ),
    _a("open the kernel's log device", "os.open('/dev/kmsg', os.O_RDONLY); won()", root=True),
    _a(
        "open the disk by its node",
        "import glob; won_if([os.open(p, os.O_RDONLY) for p in glob.glob('/dev/[vs]d[a-z]')])",
        lacking=True,
        root=True,
    ),
    _a("see the host's cgroups", "won_if(os.path.exists('{cgroup}/cgroup.procs'))", root=True),
    _a("see a file in the host's shared memory", "won_if(os.path.exists('/dev/shm/{token}'))"),
]

SECRETS_AND_PROC = [
    _a("read a secret from the environment", "won_if('{token}' in os.environ.get('SECRET', ''))"),
    _a(
        "read a secret from any process's environment",
        """
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: text = open(f'/proc/{{pid}}/environ', 'rb').read()
    except OSError: continue
    if b'{token}' in text: won(); break
""",
    ),
    _a(
        "see a host process's command line",
        """
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: text = open(f'/proc/{{pid}}/cmdline', 'rb').read()
    except OSError: continue
    if b'{marker}' in text and int(pid) != os.getpid(): won(); break
""",
    ),
    _a(
        "reach a host process with a signal",
        "os.kill({pid}, 0); won_if(b'{marker}' in open('/proc/{pid}/cmdline', 'rb').read())",
    ),
    _a("read a host process's memory map", "won_if(open('/proc/{pid}/maps').read())"),
    _a(
        "open a host process's root", "won_if('{token}' in open('/proc/{pid}/root{secret}').read())"
    ),
    _a("trace a host process", "won_if(libc.ptrace(0x4206, {pid}, 0, 0) == 0)"),
    _a(
        "trace a process of one's own",
        """
pid = os.fork()
if pid == 0:
    import time; time.sleep(5); os._exit(0)
won_if(libc.ptrace(0x4206, pid, 0, 0) == 0); os.kill(pid, 9)""",
        not_gvisor=True,
    ),
    _a(
        "read another process's memory by call",
        """
pid = os.fork()
if pid == 0:
    import time; time.sleep(5); os._exit(0)
b = ctypes.create_string_buffer(8); src = ctypes.create_string_buffer(b'x')
class V(ctypes.Structure): _fields_ = [('p', ctypes.c_void_p), ('n', ctypes.c_size_t)]
l, r = V(ctypes.addressof(b), 1), V(ctypes.addressof(src), 1)
ok = libc.process_vm_readv(pid, ctypes.byref(l), 1, ctypes.byref(r), 1, 0) == 1
os.kill(pid, 9); won_if(ok)""",
        not_gvisor=True,
    ),
    _a(
        "take a descriptor from another process",
        """
pid = os.fork()
if pid == 0:
    import time; time.sleep(5); os._exit(0)
ok = reaches(438, os.pidfd_open(pid), 0, 0); os.kill(pid, 9); won_if(ok)""",
        not_gvisor=True,
    ),
    _a(
        "set what the kernel runs on a crash",
        "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY); won()",
        root=True,
    ),
    _a(
        "set how memory is promised",
        "os.open('/proc/sys/vm/overcommit_memory', os.O_WRONLY); won()",
        root=True,
    ),
    _a(
        "set which program loads modules",
        "os.open('/proc/sys/kernel/modprobe', os.O_WRONLY); won()",
        lacking=True,
        root=True,
    ),
    _a(
        "set the network's kernel settings",
        "os.open('/proc/sys/net/ipv4/ip_forward', os.O_WRONLY); won()",
        root=True,
    ),
    _a(
        "pull the emergency lever",
        "os.open('/proc/sysrq-trigger', os.O_WRONLY); won()",
        lacking=True,
        root=True,
    ),
    _a(
        "read the kernel's memory",
        "won_if(os.read(os.open('/proc/kcore', os.O_RDONLY), 4))",
        lacking=True,
        root=True,
    ),
    _a(
        "read the kernel's addresses",
        "won_if(any(int(l.split()[0], 16) for l in open('/proc/kallsyms').readlines()[:500]))",
        root=True,
    ),
    _a(
        "read the kernel's log",
        "won_if(libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0)",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "read the kernel's command line",
        "won_if(len(open('/proc/cmdline').read().strip()) > 1)",
        not_gvisor=True,
    ),
    _a("read who holds keys", "won_if(open('/proc/keys').read())", not_gvisor=True),
    _a("read the kernel's allocations", "won_if(open('/proc/slabinfo').read())", root=True),
    _a(
        "be spared when memory runs out",
        "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000'); won()",
        lacking=True,
        root=True,
        not_gvisor=True,
    ),
    _a(
        "become root in a map of one's own",
        """
pid = os.fork()
if pid == 0:
    if libc.unshare(0x10000000) == 0:
        os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 %d 1' % {uid})
        won_if(os.getuid() == 0)
    os._exit(0)
os.waitpid(pid, 0)""",
        not_gvisor=True,
    ),
    _a(
        "find the secret's folder among the mounts",
        "won_if('{mounted}' in open('/proc/self/mountinfo').read())",
    ),
    _a("learn the host's name", "won_if(os.uname().nodename == '{nodename}')"),
    _a(
        "see the host's cgroup names",
        "won_if('{cgroup_name}' in open('/proc/self/cgroup').read())",
        root=True,
    ),
]

PRIVILEGE = [
    _a("become root", "os.setresuid(0, 0, 0); won()", root=True),
    _a(
        "have capabilities",
        "won_if([l for l in open('/proc/self/status') if l.startswith('CapEff') and int(l.split()[1], 16)])",
        root=True,
    ),
    _a(
        "have capabilities within reach",
        "won_if([l for l in open('/proc/self/status') if l.startswith('CapBnd') and int(l.split()[1], 16)])",
    ),
    _a(
        "gain rights by set-uid programs",
        "won_if([l for l in open('/proc/self/status') if l.startswith('NoNewPrivs') and l.split()[1] == '0'])",
    ),
    _a(
        "give a file away",
        "open('f', 'w').close(); os.chown('f', 0, 0); won_if(os.stat('f').st_uid == 0)",
        root=True,
    ),
    _a(
        "mount a filesystem",
        "libc.unshare(0x20000); won_if(libc.mount(b'tmpfs', b'{mountpoint}', b'tmpfs', 0, None) == 0)",
        root=True,
    ),
    _a(
        "mount a folder elsewhere",
        "libc.unshare(0x20000); won_if(libc.mount(b'/usr', b'{mountpoint}', None, 4096, None) == 0)",
        root=True,
    ),
    _a(
        "mount a process list",
        "libc.unshare(0x20000); won_if(libc.mount(b'proc', b'{mountpoint}', b'proc', 0, None) == 0)",
        root=True,
    ),
    _a(
        "make the system writable",
        "libc.unshare(0x20000); won_if(libc.mount(b'none', b'/', None, 32 | 4096, None) == 0)",
        root=True,
    ),
    _a("open a filesystem by the new calls", "won_if(call(430, b'tmpfs', 0) >= 0)", root=True),
    _a("copy the mounts away", "won_if(call(428, -100, b'/', 1) >= 0)", root=True),
    _a(
        "take off a mount",
        "won_if(reaches(166, b'/nowhere', 2, past=(errno.ENOENT, errno.EINVAL)))",
        root=True,
    ),
    _a("change the root", "os.chroot('/'); won()", root=True),
    _a(
        "change root by pivoting",
        "won_if(reaches(155, b'/', b'/', past=(errno.EBUSY, errno.EINVAL)))",
        root=True,
    ),
    _a("make a user namespace", "won_if(libc.unshare(0x10000000) == 0)", not_gvisor=True),
    _a(
        "make a mount namespace",
        "won_if(libc.unshare(0x00020000) == 0)",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "make a network namespace",
        "won_if(libc.unshare(0x40000000) == 0)",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "make a process namespace",
        "won_if(libc.unshare(0x20000000) == 0)",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "make a user namespace with clone",
        """
pid = call(56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); won()""",
        not_gvisor=True,
    ),
    _a(
        "make a user namespace with clone3",
        """
args = struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
pid = call(435, args, 88)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); won()""",
        not_gvisor=True,
    ),
    _a(
        "enter another namespace",
        "won_if(call(308, os.open('/proc/self/ns/uts', os.O_RDONLY), 0) == 0)",
        root=True,
    ),
    _a(
        "set the host's name",
        "won_if(libc.sethostname(os.uname().nodename.encode(), len(os.uname().nodename)) == 0)",
        root=True,
    ),
    _a(
        "set the clock",
        "import time; time.clock_settime(time.CLOCK_REALTIME, time.time()); won()",
        root=True,
    ),
    _a("restart the machine", "won_if(reaches(169, 0, 0, 0, past=(errno.EINVAL,)))", root=True),
    _a(
        "load another kernel",
        "won_if(reaches(246, 0, 0, 0, 0xffffffff, past=(errno.EINVAL, errno.EBUSY)))",
        lacking=True,
        root=True,
    ),
    _a(
        "load a kernel module",
        "won_if(reaches(175, b'x', 1, b'', past=(errno.ENOEXEC, errno.EINVAL, errno.EBADMSG, errno.ENOKEY)))",
        lacking=True,
        root=True,
    ),
    _a(
        "remove a kernel module",
        "won_if(reaches(176, b'no_such_module', 0x800, past=(errno.ENOENT,)))",
        lacking=True,
        root=True,
    ),
    _a(
        "load a program into the kernel",
        """
insns = struct.pack('=BBhi', 0xb7, 0, 0, 0) + struct.pack('=BBhi', 0x95, 0, 0, 0)
code, text = ctypes.create_string_buffer(insns), ctypes.create_string_buffer(b'GPL')
attr = ctypes.create_string_buffer(struct.pack('=IIQQ', 1, 2, ctypes.addressof(code), ctypes.addressof(text)) + bytes(104))
won_if(call(321, 5, attr, 128) >= 0)""",
        root=True,
    ),
    _a(
        "count the kernel's events",
        "attr = ctypes.create_string_buffer(struct.pack('=IIQ', 1, 112, 0) + bytes(96)); won_if(call(298, attr, 0, -1, -1, 0) >= 0)",
        root=True,
    ),
    _a(
        "use io_uring",
        "won_if(call(425, 1, ctypes.create_string_buffer(120)) >= 0)",
        not_gvisor=True,
    ),
    _a("handle page faults", "won_if(call(323, 1) >= 0)"),
    _a(
        "use the kernel's key rings",
        "won_if(call(248, b'user', b'x', b'y', 1, ctypes.c_int(-3)) > 0)",
        not_gvisor=True,
    ),
    _a(
        "look into the kernel's key rings",
        "won_if(call(250, 0, ctypes.c_int(-4), 1) > 0)",
        not_gvisor=True,
    ),
    _a("be another personality", "won_if(call(135, 0x0400000) >= 0)", not_gvisor=True),
    _a("reach the machine's ports", "won_if(call(173, 0x80, 1, 1) == 0)", lacking=True, root=True),
    _a("watch the whole filesystem", "won_if(call(300, 0, 0) >= 0)", root=True),
    _a("count what processes do on a file", "won_if(reaches(163, 0, past=()))", root=True),
    _a("set swap space", "won_if(reaches(167, b'/nowhere', 0, past=(errno.ENOENT,)))", root=True),
    _a(
        "take the processor for good",
        "won_if(libc.sched_setscheduler(0, 1, struct.pack('i', 1)) == 0)",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "go before all others",
        "os.setpriority(os.PRIO_PROCESS, 0, -10); won()",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "raise a hard limit",
        "import resource as r; s, h = r.getrlimit(r.RLIMIT_NOFILE); r.setrlimit(r.RLIMIT_NOFILE, (h + 1, h + 1)); won()",
        lacking=True,
        root=True,
    ),
    _a("hang up the terminal", "won_if(call(153) == 0)", root=True),
    _a(
        "push keys into a terminal",
        """
import fcntl, pty
m, s = pty.openpty(); os.setsid(); fcntl.ioctl(s, 0x540E, 0)
fcntl.ioctl(s, 0x5412, b'x'); won()""",
        root=True,
        not_gvisor=True,
    ),
    _a(
        "run 32-bit system calls",
        """
import mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes.fromhex('b814000000cd80c3'))
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
won_if(f() == os.getpid())""",
        not_gvisor=True,
    ),
]

DESCRIPTORS_AND_SOCKETS = [
    _a(
        "find an open descriptor of the host's",
        """
for fd in map(int, os.listdir('/proc/self/fd')):
    try: text = os.pread(fd, 100, 0)
    except OSError: continue
    if b'{token}' in text: won()
""",
    ),
    _a(
        "connect to an abstract socket",
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0{abstract}'); won()",
    ),
    _a(
        "connect to a socket by its path",
        "s = socket.socket(socket.AF_UNIX); s.connect('{socket}'); won()",
    ),
    _a(
        "connect to the host's loopback",
        "socket.create_connection(('127.0.0.1', {port}), 2); won()",
    ),
    _a(
        "connect to the loopback by another address",
        "socket.create_connection(('127.1.2.3', {port}), 2); won()",
    ),
    _a(
        "connect to the loopback as zero", "socket.create_connection(('0.0.0.0', {port}), 2); won()"
    ),
    _a(
        "connect to the loopback as mapped IPv6",
        "s = socket.socket(socket.AF_INET6); s.settimeout(2); s.connect(('::ffff:127.0.0.1', {port})); won()",
    ),
    _a(
        "connect to the host's own address",
        "socket.create_connection(('{address}', {port}), 2); won()",
    ),
    _a("see the host's network interfaces", "won_if(len(socket.if_nameindex()) > 1)", root=True),
    _a(
        "listen to all packets",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300); won()",
        root=True,
    ),
    _a("send raw packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); won()", root=True),
    _a("speak to the hypervisor", "socket.socket(40, socket.SOCK_STREAM); won()"),
    _a(
        "hear the kernel's device events",
        "s = socket.socket(16, socket.SOCK_DGRAM, 15); s.bind((0, 1)); won()",
        root=True,
    ),
    _a("speak to the kernel's audit", "socket.socket(16, socket.SOCK_RAW, 9); won()", root=True),
    _a(
        "speak to the kernel's packet filter",
        "socket.socket(16, socket.SOCK_RAW, 12); won()",
        root=True,
    ),
    _a("find shared memory of the host's", "won_if(call(29, {shm}, 0, 0) >= 0)"),
    _a("find a message queue of the host's", "won_if(call(68, {shm}, 0) >= 0)"),
]

ATTACKS = [*FILES, *SECRETS_AND_PROC, *PRIVILEGE, *DESCRIPTORS_AND_SOCKETS]
