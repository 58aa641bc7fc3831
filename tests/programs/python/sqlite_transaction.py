"""Proves: a database with an open transaction survives: uncommitted rows, its locks, its journal, half-read
cursors.
How: rows are inserted and not committed; a second connection must not see them and must be refused to write.
Every second step commits and opens the next transaction; the commit must then be on disk."""

import sqlite3

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
        other = connect(name)
        program.expect(f"{name} rows seen outside", count(other), committed_rows())
        try:
            other.execute("begin immediate")
            program.expect(f"{name} second writer", "let in", "refused")
        except sqlite3.OperationalError as error:
            program.expect(f"{name} second writer", "locked" in str(error))
        other.close()
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
