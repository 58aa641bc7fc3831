#!/usr/bin/env python3
"""Lays out a root file system for tests and benches from what the host has.

    rootfs.py DEST [EXTRA_DIR...]

Files are hard links where DEST is on the same file system (a host upgrade replaces names, not the
contents behind a link), else copies. EXTRA_DIR are directories to take along at their own path, such
as a virtual environment. Running it again only adds what is missing.
"""

import os
import shutil
import sys
import sysconfig

DIRECTORIES = [
    "/usr/bin",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/locale",
    "/usr/share/zoneinfo",
    "/usr/share/terminfo",
    "/usr/lib/terminfo",
    "/etc/alternatives",
    "/etc/ssl",
]
FILES = ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache", "/etc/localtime"]
SKIPPED = {"perl", "perl-base", "dri", "libLLVM-14.so.1", "jvm"}
EMPTY = ["proc", "dev", "sys", "tmp", "run", "root", "var/tmp", "home"]
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}


def place(source, target):
    if os.path.lexists(target):
        return
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def take(source, dest):
    for folder, names, files in os.walk(source):
        names[:] = [name for name in names if name not in SKIPPED]
        target = dest + folder
        os.makedirs(target, exist_ok=True)
        for name in [n for n in names if os.path.islink(os.path.join(folder, n))] + files:
            path = os.path.join(folder, name)
            if name not in SKIPPED and (os.path.islink(path) or os.path.isfile(path)):
                place(path, os.path.join(target, name))


def main():
    dest, extra = os.path.abspath(sys.argv[1]), sys.argv[2:]
    os.makedirs(dest, exist_ok=True)
    for name, target in LINKS.items():
        os.makedirs(os.path.join(dest, target), exist_ok=True)
        if not os.path.lexists(os.path.join(dest, name)):
            os.symlink(target, os.path.join(dest, name))
    for name in EMPTY:
        os.makedirs(os.path.join(dest, name), exist_ok=True)
    os.chmod(os.path.join(dest, "tmp"), 0o1777)
    python = sysconfig.get_config_var("installed_base")
    folders = DIRECTORIES + [sysconfig.get_path("stdlib")] + extra
    if python not in ("/usr", "/"):
        folders += [python]
    node = shutil.which("node")
    if node:
        folders += []
    for folder in dict.fromkeys(os.path.abspath(f) for f in folders):
        if os.path.isdir(folder):
            take(folder, dest)
    for file in FILES:
        if os.path.exists(file):
            os.makedirs(os.path.dirname(dest + file), exist_ok=True)
            place(os.path.realpath(file) if file == "/etc/localtime" else file, dest + file)


main()
