"""Raw sockets that see the beginnings of attempts to leave, filtered by the kernel.

Not packet sockets, which see the same: closing one of those waits for the whole machine.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from holdfast.sandbox.inside import packets

# Classic BPF: code, jump if true, jump if false, operand.
_LOAD, _LOAD_BYTE, _LOAD_HALF_X, _LOAD_BYTE_X, _HEADER_LENGTH = 0x20, 0x30, 0x48, 0x50, 0xB1
_MASK, _EQUAL, _ANSWER = 0x54, 0x15, 0x06
_Step = tuple[int, int, int, int]
_Program = list[_Step]
_ATTACH_FILTER = 26
_IP_HEADER = 0xFFF00000
"""Where an IPv6 packet's header is: programs see what comes after it."""


def open_sockets(*, questions: bool) -> list[int]:
    """Sockets for this network; none where we may not have any.

    Let through, once each: the first packet of a TCP connection and every UDP datagram that is
    sent to another address than the loopback's, or to one that stands for a name; with
    `questions` also what is asked of a name server on the loopback, where there is none.
    """
    return [
        *_watch(socket.AF_INET, _syn(), _datagram(questions)),
        *_watch(socket.AF_INET6, _syn_ipv6(), _datagram_ipv6()),
    ]


def _watch(family: socket.AddressFamily, syn: bytes, datagram: bytes) -> list[int]:
    fds: list[int] = []
    try:
        for protocol, code in ((packets.TCP, syn), (packets.UDP, datagram)):
            with socket.socket(family, socket.SOCK_RAW, protocol) as watch:
                if family == socket.AF_INET6:
                    packets.tell_targets(watch)
                program = ctypes.create_string_buffer(code, len(code))
                filter = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
                watch.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, filter)
                fds.append(watch.detach())
    except OSError:
        for fd in fds:
            os.close(fd)
        return []  # what the kernel refuses is not seen
    return fds


def _packed(steps: _Program) -> bytes:
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _leaving(rest: _Program, stays: int) -> bytes:
    """`rest` of a program for what leaves; what stays goes on `stays` steps further."""
    steps: _Program = [
        (_LOAD, 0, 0, 16),  # where to
        (_MASK, 0, 0, 0xFF000000),
        (_EQUAL, 0, 3, 0x7F000000),  # 127.0.0.0/8 is the sandbox itself,
        (_LOAD, 0, 0, 16),
        (_MASK, 0, 0, 0xFFC00000),
        (_EQUAL, 0, stays, 0x7F400000),  # but for 127.64.0.0/10, which stands for names
        *rest,
    ]
    return _packed(steps)


def _syn() -> bytes:
    rest = [
        (_HEADER_LENGTH, 0, 0, 0),
        (_LOAD_BYTE_X, 0, 0, 13),
        (_MASK, 0, 0, 0x12),
        (_EQUAL, 0, 1, 0x02),  # SYN without ACK
        (_ANSWER, 0, 0, 64),
        (_ANSWER, 0, 0, 0),
    ]
    return _leaving(rest, stays=5)


def _datagram(questions: bool) -> bytes:
    rest = [(_ANSWER, 0, 0, 64)]
    if questions:
        rest += [
            (_HEADER_LENGTH, 0, 0, 0),
            (_LOAD_HALF_X, 0, 0, 2),
            (_EQUAL, 0, 1, 53),
            (_ANSWER, 0, 0, 600),
        ]
    return _leaving([*rest, (_ANSWER, 0, 0, 0)], stays=1)


def _leaving_ipv6(rest: _Program) -> bytes:
    """`rest` of a program for what leaves; it ends with the answer to what stays."""
    words = (0, 0, 0, 1)  # of ::1, the sandbox itself
    steps: _Program = []
    for number, word in enumerate(words):
        here = 2 * number
        last = number == len(words) - 1
        differs = 2 * len(words) - here - 2  # to `rest`
        steps += [
            (_LOAD, 0, 0, _IP_HEADER + 24 + 4 * number),
            (_EQUAL, len(rest) - 1 if last else 0, differs, word),
        ]
    return _packed([*steps, *rest])


def _syn_ipv6() -> bytes:
    return _leaving_ipv6(
        [
            (_LOAD_BYTE, 0, 0, 13),
            (_MASK, 0, 0, 0x12),
            (_EQUAL, 0, 1, 0x02),  # SYN without ACK
            (_ANSWER, 0, 0, 64),
            (_ANSWER, 0, 0, 0),
        ]
    )


def _datagram_ipv6() -> bytes:
    return _leaving_ipv6([(_ANSWER, 0, 0, 64), (_ANSWER, 0, 0, 0)])
