"""The system call filter: what code in a sandbox may ask of the kernel.

An allow-list: what ordinary programs need is let through, what the kernel knows but we don't
grant answers EPERM, what the kernel may learn in future answers ENOSYS (so that a libc falls
back). New namespaces, ptrace, keyrings, bpf, io_uring, userfaultfd, perf and every mount call
are outside the list; sockets are limited to unix, IPv4, IPv6 and route netlink.
The filter is only one of the layers; it narrows the kernel's surface, and grants nothing.
"""

from __future__ import annotations

import errno
import struct

from holdfast.sandbox.namespace import syscalls

ALLOWED = frozenset(
    """
    accept accept4 access alarm arch_prctl bind brk cachestat chdir chmod chown clock_getres
    clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
    epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
    fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync
    fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_wait futex_waitv futex_wake get_robust_list get_thread_area getcpu
    getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid
    getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid
    getsockname getsockopt gettid gettimeofday getuid getxattr inotify_add_watch inotify_init
    inotify_init1 inotify_rm_watch ioprio_get kill lchown lgetxattr link linkat listen listxattr
    llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier
    memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl
    msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat
    open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
    pkey_mprotect poll ppoll prctl pread64 preadv preadv2 process_mrelease pselect6
    pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
    remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_yield select semctl
    semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area
    set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setregid
    setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt
    shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat
    sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
    times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork wait4 waitid
    write writev
    """.split()
)

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000

_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag, time included
_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_X32_BIT = 0x40000000
_SET_LEASE = 1024
_AGENT = 1
"""The agent's pid, always: nothing inside may change its limits or its share of the processor."""
_SCHEDULING = ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
_ALL_OF_A_USER = {"setpriority": 2, "ioprio_set": 3}
"""Kinds of target that would include the agent, which is the same user."""


def _refuse(number: int) -> int:
    return _ERRNO | number


class _Program:
    """BPF instructions, assembled one after another."""

    def __init__(self) -> None:
        self._code: list[bytes] = []

    def add(self, code: int, value: int, yes: int = 0, no: int = 0) -> None:
        self._code.append(struct.pack("=HBBI", code, yes, no, value))

    def load_argument(self, index: int) -> None:
        self.add(_LOAD, _ARGUMENTS + 8 * index)

    def give(self, verdict: int) -> None:
        self.add(_RETURN, verdict)

    def block(self, number: int, body: _Program) -> None:
        """Run `body`, which must end in a verdict, for this system call only."""
        self.add(_EQUAL, number, 0, len(body))
        self._code += body._code

    def __len__(self) -> int:
        return len(self._code)

    def assembled(self) -> bytes:
        return b"".join(self._code)


def _one_of(argument: int, values: tuple[int, ...], otherwise: int) -> _Program:
    body = _Program()
    body.load_argument(argument)
    for value in values:
        body.add(_EQUAL, value, 0, 1)
        body.give(_ALLOW)
    body.give(_refuse(otherwise))
    return body


def _none_of(argument: int, values: tuple[int, ...]) -> _Program:
    body = _Program()
    body.load_argument(argument)
    for value in values:
        body.add(_EQUAL, value, 0, 1)
        body.give(_refuse(errno.EPERM))
    body.give(_ALLOW)
    return body


def _not_the_agent(kind: int | None = None) -> _Program:
    """Refuse a call whose target (the argument after its kind, if it has one) is the agent."""
    body = _Program()
    if kind is not None:
        body.load_argument(0)
        body.add(_EQUAL, kind, 0, 1)
        body.give(_refuse(errno.EPERM))
    body.load_argument(0 if kind is None else 1)
    body.add(_EQUAL, _AGENT, 0, 1)
    body.give(_refuse(errno.EPERM))
    body.give(_ALLOW)
    return body


def _no_new_namespaces() -> _Program:
    body = _Program()
    body.load_argument(0)
    body.add(_ANY_BIT, _NEW_NAMESPACES, 0, 1)
    body.give(_refuse(errno.EPERM))
    body.give(_ALLOW)
    return body


def _sockets() -> _Program:
    body = _Program()
    body.load_argument(0)
    for family in (_UNIX, _IPV4, _IPV6):
        body.add(_EQUAL, family, 0, 1)
        body.give(_ALLOW)
    body.add(_EQUAL, _NETLINK, 0, 3)
    body.load_argument(2)
    body.add(_EQUAL, 0, 0, 1)  # NETLINK_ROUTE: what getifaddrs and getaddrinfo ask
    body.give(_ALLOW)
    body.give(_refuse(errno.EAFNOSUPPORT))
    return body


def _answer(number: int) -> _Program:
    body = _Program()
    body.give(_refuse(number))
    return body


def program(machine: str, *, without: frozenset[str] = frozenset()) -> bytes:
    """The filter for this kind of machine; `without` names further calls to refuse."""
    architecture, numbers = syscalls.BY_MACHINE[machine]
    filter = _Program()
    filter.add(_LOAD, _ARCHITECTURE)
    filter.add(_EQUAL, architecture, 1, 0)
    filter.give(_KILL)
    filter.add(_LOAD, _NUMBER)
    if machine == "x86_64":
        filter.add(_AT_LEAST, _X32_BIT, 0, 1)
        filter.give(_KILL)
    filter.block(numbers["clone"], _no_new_namespaces())
    # Its flags lie in memory, where a filter can't look; every libc falls back to clone.
    filter.block(numbers["clone3"], _answer(errno.ENOSYS))
    filter.block(numbers["socket"], _sockets())
    filter.block(numbers["socketpair"], _one_of(0, (_UNIX,), errno.EAFNOSUPPORT))
    filter.block(numbers["ioctl"], _none_of(1, (_TIOCSTI, _TIOCLINUX)))
    filter.block(numbers["personality"], _one_of(0, (0, 0x8, 0x40000, 0xFFFFFFFF), errno.EPERM))
    # A lease on a file makes whoever opens it wait, the agent included.
    filter.block(numbers["fcntl"], _none_of(1, (_SET_LEASE,)))
    # Its events are a number for the whole machine; a libc falls back to threads.
    filter.block(numbers["io_setup"], _answer(errno.ENOSYS))
    for name in ("prlimit64", *_SCHEDULING):
        if name not in without:
            filter.block(numbers[name], _not_the_agent())
    for name, kind in _ALL_OF_A_USER.items():
        filter.block(numbers[name], _not_the_agent(kind))
    granted = sorted(numbers[name] for name in ALLOWED - without if name in numbers)
    for first, last in _ranges(granted):
        filter.add(_AT_LEAST, first, 0, 2)
        filter.add(_GREATER, last, 1, 0)
        filter.give(_ALLOW)
    filter.add(_GREATER, max(numbers.values()), 0, 1)
    filter.give(_refuse(errno.ENOSYS))
    filter.give(_refuse(errno.EPERM))
    return filter.assembled()


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, last)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
