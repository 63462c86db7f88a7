"""Becomes another program whose life is bound to its parent's.

Usage: `python -I -S shim.py PARENT SIGNAL IDENTITY PROGRAM ARG...`

A child cannot safely run Python between fork and exec in a process with threads, so this runs as a program of its own.
`same` keeps the user; `namespace` turns root into "nobody" inside a new user namespace (files stay root's);
`nobody` gives up root for good. Standard library only: it starts isolated and without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

EXIT_REFUSED = 120
"""The identity could not be taken."""

EXIT_NOT_EXECUTABLE = 121
"""The program could not be executed as that identity."""

NOBODY = 65534
_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1


def take_identity(identity: str) -> None:
    """Raises OSError where the kernel refuses."""
    if identity == "namespace":
        _enter_namespace(os.getuid(), os.getgid())
    elif identity == "nobody":
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def bind_to_parent(parent: int, signal_number: int) -> None:
    """Must follow `take_identity`: the kernel forgets the death signal when credentials change."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(EXIT_REFUSED)


def main(arguments: list[str]) -> None:
    parent, signal_number, identity, *command = arguments
    try:
        take_identity(identity)
    except OSError as error:
        print(f"identity {identity} refused: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    bind_to_parent(int(parent), int(signal_number))
    try:
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        print(f"cannot execute {command[0]}: {error}", file=sys.stderr)
        sys.exit(EXIT_NOT_EXECUTABLE)


def _enter_namespace(uid: int, gid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare") or libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "no new user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {gid} 1")


if __name__ == "__main__":
    main(sys.argv[1:])
