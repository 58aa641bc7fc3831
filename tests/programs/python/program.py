"""The protocol every Python program here speaks; see ../c/program.h for the whole of it.

A program calls `run(setup, check, step, digest)`. `check` uses `expect`; `digest` returns anything with a stable
repr (no hash(), id(), pid or time in it). `require` stands for an import that may be missing.
"""

import hashlib
import importlib
import os
import sys
import time

PATIENCE = 60.0  # seconds; the longest anything may take before it counts as lost

_failures = []


def expect(what, got, expected=True):
    """Records the first thing that is not as an undisturbed run would have it."""
    if got != expected and not _failures:
        _failures.append(f"{what}, expected {expected!r}, got {got!r}"[:500].replace("\n", " "))


def within_patience(condition):
    """True as soon as the condition holds, False when it has not in time."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def require(name):
    """Imports a module, or ends the program with `skip`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        skip(f"import: {error}")


def skip(why):
    say(f"skip {why}")
    sys.exit(0)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sha(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, (bytes, bytearray, memoryview)) else repr(part).encode())
    return digest.hexdigest()[:16]


def _check(check, pid):
    try:
        check()
    except Exception as error:  # a program that cannot even look is one that fails
        expect("check", f"{type(error).__name__}: {error}", "no exception")
    expect("own pid", os.getpid(), pid)
    say(f"fail {_failures[0]}" if _failures else "ok")


def run(setup, check, step, digest, finish=lambda: None):
    setup()
    pid = os.getpid()
    say("ready")
    for line in iter(sys.stdin.readline, ""):
        command = line.strip()
        if command == "quit":
            break
        if command == "check":
            _check(check, pid)
        elif command == "step":
            step()
            say("stepped")
        elif command == "digest":
            say(sha(digest()))
        else:
            say(f"unknown {command}")
    finish()
    sys.stdout.flush()
    os._exit(0)  # background threads are part of the state, not something to wait for
