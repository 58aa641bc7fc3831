"""Notebook lines: `!command` and `%magic`. `transform` makes them calls of this module's object."""

import builtins
import sys

from .own import __builtins__
from . import network, shell, timing
from .transform import NAME
from importlib import invalidate_caches
from os import chdir, environ, getcwd
from os.path import expanduser
from shlex import split


class UnknownMagic(Exception):
    """Raised for a magic this agent does not have."""


class BadMagic(Exception):
    """Raised for a magic with invalid arguments."""


UnknownMagic.__module__ = BadMagic.__module__ = "stasis"


class Magics:
    def __init__(self, session):
        self._session = session
        self._before = None
        self._lines = {
            "pip": self._pip,
            "cd": self._cd,
            "pwd": lambda _: getcwd(),
            "env": self._env,
            "time": lambda code: timing.once(session, code),
            "timeit": lambda code: timing.often(session, code),
            "matplotlib": lambda _: None,  # figures are shown in any case
        }
        self._cells = {
            "bash": lambda line, body: self._script("bash", line, body),
            "sh": lambda line, body: self._script("sh", line, body),
            "writefile": self._writefile,
            "time": lambda line, body: timing.once(session, line + "\n" + body),
            "timeit": lambda line, body: timing.often(session, line + "\n" + body),
        }

    def install(self):
        setattr(builtins, NAME, self)

    def line(self, name, arguments):
        """`%name arguments`"""
        return self._find(name, self._lines, "%")(arguments)

    def cell(self, name, line, body):
        """`%%name line` and everything below it"""
        return self._find(name, self._cells, "%%")(line, body)

    def _find(self, name, table, mark):
        if name in table:
            return table[name]
        known = ", ".join(mark + known for known in sorted(table))
        raise UnknownMagic("%s%s is not known here. Known are %s" % (mark, name, known))

    def shell(self, command):
        """`!command`"""
        self._run(command)

    def capture(self, command):
        """`x = !command`: the lines of its standard output"""
        return self._run(command, capture=True).decode("utf-8", "backslashreplace").splitlines()

    def _run(self, command, capture=False):
        command = shell.expand(command, self._session.scope)
        if not shell.is_pip(command):
            return self._spawn([shell.interpreter(), "-c", command], None, capture)
        command = shell.own_pip(command)
        arguments = [shell.interpreter(), "-c", command]
        try:
            return self._spawn(arguments, shell.pip_environment(), capture)
        finally:
            invalidate_caches()
            if self._session.scope.get("_exit_code") and not network.is_there():
                print(network.words(), file=sys.stderr)

    def _spawn(self, arguments, env=None, capture=False):
        streams = self._session.streams
        streams.settle()
        try:
            code, output = shell.run(arguments, env, capture)
        finally:
            streams.settle()
        self._session.scope["_exit_code"] = code
        return output

    def _pip(self, arguments):
        self._run("pip " + arguments)

    def _cd(self, path):
        here = getcwd() if self._is_somewhere() else None
        if path == "-":
            path = self._before or ""
        chdir(expanduser(path.strip("'\"") or "~"))
        self._before = here
        print(getcwd(), file=sys.stdout)

    def _is_somewhere(self):
        try:
            return bool(getcwd())
        except OSError:
            return False

    def _env(self, text):
        if not text:
            return dict(environ)
        name, equals, value = text.partition("=") if "=" in text else text.partition(" ")
        name, value = name.strip(), value.strip()
        if not equals:
            return environ.get(name)
        environ[name] = value
        print("env: %s=%s" % (name, value), file=sys.stdout)

    def _script(self, name, line, body):
        self._spawn([shell.interpreter(name), "-c", body, name, *split(line)])

    def _writefile(self, line, body):
        words = split(line)
        append = "-a" in words[:-1]
        if not words or len(words) != 1 + append:
            raise BadMagic("%%writefile needs one path, and may have -a before it to append")
        with open(expanduser(words[-1]), "a" if append else "w", encoding="utf-8") as file:
            file.write(body)
        print("%s %s" % ("Appended to" if append else "Wrote", words[-1]), file=sys.stdout)
