"""Proves: a database with an open transaction survives: uncommitted rows, its locks, its journal, half-read
cursors.
How: rows are inserted and not committed; a second process must not see them and must be refused to write.
Every second step commits and opens the next transaction; the commit must then be on disk."""

import sqlite3
import subprocess
import sys

import program

steps = 0
MODES = {"rollback.db": "delete", "wal.db": "wal"}
connections, cursors = {}, {}


def committed_rows():
    return 10 * (steps // 2 * 2)  # those of steps before the last commit; each step, and the set-up, adds 10


def connect(name):
    return sqlite3.connect(name, isolation_level=None, timeout=0.05)


def insert(name):
    connections[name].executemany(
        "insert into rows values (?, ?)", [(steps * 10 + i, f"step {steps}") for i in range(10)]
    )


def setup():
    for name, mode in MODES.items():
        connection = connections[name] = connect(name)
        connection.execute(f"pragma journal_mode={mode}")
        connection.execute(
            "pragma cache_size=10"
        )  # small, so that dirty pages spill into the file and the journal matters
        connection.execute("create table rows (id integer primary key, text)")
        connection.execute(
            "create table fixed as with recursive n(i) as (select 1 union all select i+1 from n where i<200) "
            "select i from n"
        )
        connection.execute("begin immediate")
        insert(name)
        cursors[name] = connection.execute("select i from fixed order by i")
        cursors[name].fetchmany(5)


def count(connection):
    return connection.execute("select count(*) from rows").fetchone()[0]


# Another process, because sqlite tells files of one process apart by device and inode numbers, and both are new
# after a restore: a second connection in this process would not notice the first one's locks.
OUTSIDE = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0.05)
print(other.execute("select count(*) from rows").fetchone()[0], end=" ")
try:
    other.execute("begin immediate")
    print("let in")
except sqlite3.OperationalError as error:
    print("locked" if "locked" in str(error) else error)
"""


def seen_outside(name):
    command = [sys.executable, "-S", "-c", OUTSIDE, name]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def check():
    for name, mode in MODES.items():
        own = connections[name]
        program.expect(f"{name} in a transaction", own.in_transaction)
        program.expect(f"{name} rows seen inside", count(own), 10 * (steps + 1))
        program.expect(
            f"{name} last row",
            own.execute("select text from rows where id=?", (steps * 10 + 9,)).fetchone(),
            (f"step {steps}",),
        )
        program.expect(f"{name} seen outside", seen_outside(name), f"{committed_rows()} locked")
        program.expect(f"{name} cursor", [row[0] for row in cursors[name].fetchmany(5)], [6, 7, 8, 9, 10])
        cursors[name] = own.execute("select i from fixed order by i")
        cursors[name].fetchmany(5)
        program.expect(f"{name} integrity", own.execute("pragma integrity_check").fetchone(), ("ok",))


def step():
    global steps
    steps += 1
    for name in MODES:
        if steps % 2 == 0:
            connections[name].execute("commit")
            connections[name].execute("begin immediate")
        insert(name)


program.run(
    setup,
    check,
    step,
    lambda: [connections[name].execute("select sum(id), count(*) from rows").fetchone() for name in MODES],
)
