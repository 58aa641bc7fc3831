"""A session of real work, for every client: load data, plot, files, a failure, a cancelled call.
`call(tool, arguments, progress=None)` returns the result as a dictionary."""

import asyncio
import base64
import os
import time

TABLE = "".join(["name,amount\n", *(f"row{n},{n}\n" for n in range(10))])
LOAD = "df = pd.read_csv('/tmp/in.csv')\nint(df.amount.sum())"
PLOT = """
fig, ax = plt.subplots(figsize=(2, 2))
ax.plot(df.amount)
print('drawn')
fig
"""
ENDLESS = "kept = 'yes'\nprint('on', flush=True)\nwhile True: pass"
# against hangs only
PATIENCE = 240


def stdio(transport, place, token):
    """How the program is started: in front of a service, or on its own directory."""
    at = ["--url", place] if transport == "stdio" else ["--data-dir", place]
    return os.environ["STASIS"], [*at, "mcp"], {**os.environ, "STASIS_TOKEN": token}


def value(result):
    assert not result.get("isError"), result
    return result["structuredContent"].get("value")


async def work(call):
    # `base` has the libraries loaded already
    made = await call("branch_machine", {"machine": "base"})
    machine = made["structuredContent"]["machines"][0]["name"]

    async def run(code):
        arguments = {"machine": machine, "code": code, "timeout_seconds": PATIENCE}
        return await call("run_code", arguments)

    await call("write_file", {"machine": machine, "path": "/tmp/in.csv", "content": TABLE})
    first = await run(LOAD)
    assert value(first) == "45", first
    assert first["structuredContent"]["address"].startswith(f"{machine}@"), first
    assert first["structuredContent"]["receipt"]["intact"] is True

    plot = await run(PLOT)
    assert [part["type"] for part in plot["content"][:2]] == ["text", "image"], plot
    assert plot["content"][0]["text"].startswith("drawn")
    assert plot["content"][1]["mimeType"] == "image/png"
    assert base64.b64decode(plot["content"][1]["data"]).startswith(b"\x89PNG")

    assert value(await run("df[:1].to_csv('/tmp/out.csv', index=False)")) is None
    piece = await call("read_file", {"machine": machine, "path": "/tmp/out.csv"})
    assert piece["structuredContent"]["content"] == "name,amount\nrow0,0\n", piece
    listed = await call("list_files", {"machine": machine, "path": "/tmp"})
    assert "out.csv" in str(listed["structuredContent"]), listed

    wrong = await run("print('before')\n1/0")
    assert wrong["isError"] and wrong["structuredContent"]["stdout"] == "before", wrong
    assert wrong["structuredContent"]["error"]["name"] == "ZeroDivisionError", wrong
    return machine


async def give_up(call, machine):
    """Starts an endless call, and cancels it after its first progress."""
    heard = asyncio.Event()

    async def progress(*_):
        heard.set()

    arguments = {"machine": machine, "code": ENDLESS, "timeout_seconds": 600}
    calling = asyncio.ensure_future(call("run_code", arguments, progress))
    await asyncio.wait_for(heard.wait(), PATIENCE)
    calling.cancel()
    try:
        await calling
    except asyncio.CancelledError:
        pass
    end = time.monotonic() + PATIENCE
    while True:
        shown = await call("show_history", {"machine": machine, "limit": 1})
        if shown["structuredContent"]["instructions"][-1]["status"] == "interrupted":
            break
        assert time.monotonic() < end, shown
        await asyncio.sleep(0.05)
    kept = await call("run_code", {"machine": machine, "code": "kept"})
    assert value(kept) == "'yes'", kept
