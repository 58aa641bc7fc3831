"""Proves: polars frames and its thread pool survive.
How: a frame grows by each step; a check builds the same from scratch and compares it and a lazy query that runs
on all threads."""

import program

pl = program.require("polars")
steps = 0


def part(n):
    rows = range(n * 4000, (n + 1) * 4000)
    return pl.DataFrame(
        {
            "id": list(rows),
            "group": [f"g{i * 7919 % 31}" for i in rows],
            "value": [(i * 104729 % 1000) / 8 for i in rows],
            "nested": [[i, i + 1] for i in rows],
            "maybe": [None if i % 5 == 0 else i for i in rows],
        }
    )


def query(frame):
    """Sums of eighths are exact, so the order in which threads add cannot matter."""
    return (
        frame.lazy()
        .filter(pl.col("id") % 3 != 0)
        .group_by("group")
        .agg(pl.col("value").sum().alias("total"), pl.col("maybe").null_count().alias("nulls"), pl.len().alias("rows"))
        .sort("group")
        .collect()
    )


def setup():
    global frame, lazy
    frame = part(0)
    lazy = (
        frame.lazy().with_columns((pl.col("value") * 2).alias("double")).select("id", "double")
    )  # described, not yet run
    query(frame)


def check():
    expected = pl.concat([part(n) for n in range(steps + 1)])
    program.expect("frame", frame.equals(expected))
    program.expect("query", query(frame).equals(query(expected)))
    program.expect("lazy query from the start", lazy.collect()["double"].sum(), float(part(0)["value"].sum() * 2))
    sliced = frame.slice(10, 100)
    program.expect("slice", sliced["id"].to_list(), list(range(10, 110)))


def step():
    global steps, frame
    steps += 1
    frame = pl.concat([frame, part(steps)])


program.run(setup, check, step, lambda: query(frame).rows())
