#!/usr/bin/env python3
"""Creates a root file system for tests and benches from the host's files.

    rootfs.py DEST [EXTRA...]

Copies the system's programs and libraries, the running Python and Node. EXTRA are directories to
include at their own path, such as a virtual environment. Files are hard links where DEST is on the
same file system (a host upgrade replaces names, not the contents behind a link), else copies.
Running it again adds new and changed files, and keeps files that the host no longer has.
"""

import os
import shutil
import sys
import sysconfig

MULTIARCH = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
SYSTEM = [
    "/usr/bin",
    f"/usr/lib/{MULTIARCH}",
    "/usr/lib64",
    "/usr/lib/locale",
    "/usr/lib/terminfo",
    "/usr/local/lib",
    "/usr/share/ca-certificates",
    "/usr/share/nodejs",
    "/usr/share/terminfo",
    "/usr/share/zoneinfo",
    "/etc/alternatives",
    "/etc/ssl/certs",
]
FILES = ["group", "ld.so.cache", "nsswitch.conf", "passwd", "protocols", "services", "ssl/openssl.cnf"]
SKIPPED = {"perl", "perl-base", "dri", "libLLVM-14.so.1", "jvm", "node_modules"}
EMPTY = ["proc", "dev", "sys", "tmp", "run", "root", "var/tmp", "home", "etc", "usr/sbin"]
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def same(source, target):
    """Whether `target` already matches what `place` would make of `source`."""
    if not os.path.lexists(target) or os.path.islink(source) != os.path.islink(target):
        return False
    if os.path.islink(source):
        return os.readlink(source) == os.readlink(target)
    one, other = os.stat(source), os.stat(target)
    copied = (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
    return os.path.samestat(one, other) or copied


def place(source, target):
    if same(source, target):
        return
    if os.path.lexists(target):
        os.unlink(target)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def take(source, dest, skipped=frozenset()):
    """Copies a directory with its contents; other kinds than files and links (a socket) are left
    out."""
    real = os.path.realpath(source)
    if real != source:
        os.makedirs(os.path.dirname(dest + source), exist_ok=True)
        if not os.path.lexists(dest + source):
            os.symlink(real, dest + source)
    for folder, names, files in os.walk(real):
        os.makedirs(dest + folder, exist_ok=True)
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        names[:] = [name for name in names if name not in skipped]
        for name in links + files:
            path = os.path.join(folder, name)
            readable = os.path.islink(path) or (os.path.isfile(path) and os.access(path, os.R_OK))
            if readable and name not in skipped:
                place(path, dest + path)


def skeleton(dest):
    for name in EMPTY:
        os.makedirs(os.path.join(dest, name), exist_ok=True)
    os.chmod(os.path.join(dest, "tmp"), 0o1777)
    for name, target in LINKS.items():
        os.makedirs(os.path.join(dest, target), exist_ok=True)
        if not os.path.lexists(os.path.join(dest, name)):
            os.symlink(target, os.path.join(dest, name))
    with open(os.path.join(dest, "etc/hosts"), "w") as hosts:
        hosts.write(HOSTS)


def python_folders():
    """All of an interpreter with its own prefix; of the system's, only its own directories."""
    if sys.base_prefix != "/usr":
        return [sys.base_prefix]
    return [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "/usr/lib/python3"]


def main():
    dest, extra = os.path.realpath(sys.argv[1]), [os.path.abspath(path) for path in sys.argv[2:]]
    skeleton(dest)
    for folder in filter(os.path.isdir, SYSTEM):
        take(folder, dest, SKIPPED)
    for folder in dict.fromkeys(python_folders() + extra):
        take(folder, dest)
    for file in ["/etc/" + name for name in FILES]:
        if os.path.exists(file):
            os.makedirs(os.path.dirname(dest + file), exist_ok=True)
            place(os.path.realpath(file), dest + file)
    place(os.path.realpath("/etc/localtime"), dest + "/etc/localtime")


main()
