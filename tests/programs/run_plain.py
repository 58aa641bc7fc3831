#!/usr/bin/env python3
"""Runs every program undisturbed: ready, check, step x3, digest, check, quit. One that fails here is a bad program.

    run_plain.py [--out DIR] [--python PATH] [--node PATH] [--deno PATH] [--twice] [name ...]

Builds the C programs into DIR first (only what is out of date). --twice runs each again and wants the same digest.
Skipped means: a module, an interpreter or a kernel facility is missing; the reason is printed.
"""

import argparse
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 180  # seconds for any one answer; importing large libraries on a cold disk is slow
SCRIPT = [
    ("check", "ok"),
    ("step", "stepped"),
    ("step", "stepped"),
    ("step", "stepped"),
    ("digest", None),
    ("check", "ok"),
]


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def load_programs():
    return tomllib.loads((HERE / "programs.toml").read_text())["program"]


def build(program, out):
    """Compiles one C program if its source or a header is newer than the binary; returns the binary."""
    source, binary = HERE / program["file"], out / program["name"]
    newest = max(path.stat().st_mtime for path in [source, *source.parent.glob("*.h")])
    if not binary.exists() or binary.stat().st_mtime < newest:
        out.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-o", binary, source], check=True)
    return binary


def command_of(program, options):
    arguments = program.get("args", [])
    if program["kind"] == "c":
        return [str(build(program, options.out)), *arguments]
    interpreter = {
        "python": [options.python],
        "js": [options.node],
        "deno": [options.deno, "run", "--allow-all", "--quiet"],
    }[program["kind"]]
    if not shutil.which(interpreter[0]):
        raise Skipped(f"no {interpreter[0]}")
    return [*interpreter, str(HERE / program["file"]), *arguments]


class Conversation:
    """One running program. Reads the descriptor itself: select would miss a line waiting in a buffer."""

    def __init__(self, command, environment, directory):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, cwd=directory, env=environment
        )
        self.text = b""

    def hear(self):
        end = time.monotonic() + PATIENCE
        while b"\n" not in self.text:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"no answer in {PATIENCE} s")
            chunk = os.read(self.process.stdout.fileno(), 4096)
            if not chunk:
                self.errors.seek(0)
                said = self.errors.read().decode(errors="replace").strip()[-300:]
                raise Failed(f"ended with {self.process.wait()}: {said}")
            self.text += chunk
        line, _, self.text = self.text.partition(b"\n")
        return line.decode()

    def ask(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.hear()


def converse(conversation):
    """Speaks the script and returns the digest."""
    first = conversation.hear()
    if first.startswith("skip "):
        raise Skipped(first[5:])
    if first != "ready":
        raise Failed(f"said `{first}` instead of `ready`")
    digest = None
    for line, expected in SCRIPT:
        answer = conversation.ask(line)
        if expected is None:
            digest = answer
        elif answer != expected:
            raise Failed(f"{line}: {answer}")
    conversation.process.stdin.write(b"quit\n")
    conversation.process.stdin.flush()
    if (code := conversation.process.wait(PATIENCE)) != 0:
        raise Failed(f"exit code {code}")
    return digest


def run(program, options):
    command = command_of(program, options)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **program.get("env", {})}
    with tempfile.TemporaryDirectory(prefix="program-") as directory:
        conversation = Conversation(command, environment, directory)
        try:
            return converse(conversation)
        finally:
            conversation.process.kill()
            conversation.process.wait()


def run_and_report(program, options):
    start = time.monotonic()
    try:
        digest = run(program, options)
        if options.twice and (again := run(program, options)) != digest:
            raise Failed(f"digest {digest}, and {again} in a second run")
        result, detail = "ok", digest
    except Skipped as reason:
        result, detail = "skipped", str(reason)
    except (Failed, subprocess.SubprocessError, BrokenPipeError) as reason:
        result, detail = "FAILED", str(reason)
    print(f"{program['name']:28} {result:8} {time.monotonic() - start:6.2f} s  {detail}", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "programs-out")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--node", default="node")
    parser.add_argument("--deno", default="deno")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--build-only", action="store_true", help="build the C programs and stop")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.out = options.out.resolve()  # programs are started in a directory of their own
    programs = [program for program in load_programs() if not options.names or program["name"] in options.names]
    if options.build_only:
        for program in programs:
            if program["kind"] == "c":
                build(program, options.out)
        return 0
    results = [run_and_report(program, options) for program in programs]
    print(f"{results.count('ok')} ok, {results.count('skipped')} skipped, {results.count('FAILED')} failed")
    return 1 if "FAILED" in results else 0


if __name__ == "__main__":
    sys.exit(main())
