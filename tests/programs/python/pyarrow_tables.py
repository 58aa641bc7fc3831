"""Proves: Arrow tables, its memory pool, its threads and open readers survive.
How: a table grows by each step; a check builds the same from scratch, compares, computes on it, writes and
reads Parquet, and reads on in a stream that was left half read."""

import io

import program

pa = program.require("pyarrow")
compute = program.require("pyarrow.compute")
parquet = program.require("pyarrow.parquet")
steps = 0


def part(n):
    rows = list(range(n * 3000, (n + 1) * 3000))
    return pa.table(
        {
            "id": rows,
            "text": [f"row {i % 53}" for i in rows],
            "value": [i / 4 for i in rows],
            "list": [[i] * (i % 4) for i in rows],
            "coded": pa.array([f"c{i % 7}" for i in rows]).dictionary_encode(),
        }
    )


def open_stream():
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, part(0).schema) as writer:
        for batch in part(0).to_batches(max_chunksize=500):
            writer.write_batch(batch)
    return pa.ipc.open_stream(pa.py_buffer(sink.getvalue()))


def half_read():
    reader = open_stream()
    for _ in range(3):
        reader.read_next_batch()
    return reader


def setup():
    global table, reader
    table, reader = part(0), half_read()


def check():
    global reader
    expected = pa.concat_tables([part(n) for n in range(steps + 1)])
    program.expect("table", table.equals(expected))
    program.expect("valid", table.validate(full=True), None)
    program.expect("sum", compute.sum(table["value"]).as_py(), compute.sum(expected["value"]).as_py())
    grouped = table.group_by("text").aggregate([("value", "sum"), ("id", "count")]).sort_by("text")
    program.expect(
        "groups",
        grouped["id_count"].to_pylist(),
        expected.group_by("text").aggregate([("id", "count")]).sort_by("text")["id_count"].to_pylist(),
    )
    parquet.write_table(table, "table.parquet")
    program.expect(
        "Parquet and back", parquet.read_table("table.parquet")["value"].to_pylist(), expected["value"].to_pylist()
    )
    rest = [batch["id"][0].as_py() for batch in reader]
    program.expect("rest of the stream", rest, [1500, 2000, 2500])
    reader = half_read()


def step():
    global steps, table
    steps += 1
    table = pa.concat_tables([table, part(steps)])


program.run(setup, check, step, lambda: (table.num_rows, compute.sum(table["value"]).as_py()))
