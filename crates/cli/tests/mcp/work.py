"""A session of real work, whichever client carries it: load data, plot, files, a call that is
given up. `call(tool, arguments, progress=None)` gives the result as a dictionary."""

import asyncio
import time

DATA = "import pandas as pd\ndf = pd.DataFrame({'a': range(10), 'b': range(10)})\nint(df.a.sum())"
PLOT = """
import matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(2, 2))
ax.plot(df.a, df.b)
print('drawn')
fig
"""
ENDLESS = "kept = 'yes'\nprint('on', flush=True)\nwhile True: pass"


def value(result):
    assert not result.get("isError"), result
    return result["structuredContent"].get("value")


async def work(call):
    first = await call("run_code", {"code": DATA, "timeout_seconds": 120})
    machine = first["structuredContent"]["machine"]
    assert value(first) == "45", first
    assert first["structuredContent"]["address"] == f"{machine}@0"
    assert first["structuredContent"]["receipt"]["intact"] is True

    plot = await call("run_code", {"machine": machine, "code": PLOT, "timeout_seconds": 120})
    kinds = [part["type"] for part in plot["content"]]
    assert kinds[:2] == ["text", "image"], kinds
    assert plot["content"][0]["text"].startswith("drawn")
    assert plot["content"][1]["mimeType"] == "image/png"

    await call("write_file", {"machine": machine, "path": "/tmp/in.csv", "content": "a,b\n1,2\n"})
    read = "int(pd.read_csv('/tmp/in.csv').b[0])"
    assert value(await call("run_code", {"machine": machine, "code": read})) == "2"
    piece = await call("read_file", {"machine": machine, "path": "/tmp/in.csv"})
    assert piece["structuredContent"]["content"] == "a,b\n1,2\n"

    wrong = await call("run_code", {"machine": machine, "code": "print('before')\n1/0"})
    assert wrong["isError"] and wrong["structuredContent"]["stdout"] == "before", wrong
    return machine


async def give_up(call, machine):
    """Begins what never ends, and gives up as soon as it is heard of."""
    heard = asyncio.Event()

    async def progress(*_):
        heard.set()

    arguments = {"machine": machine, "code": ENDLESS, "timeout_seconds": 600}
    calling = asyncio.ensure_future(call("run_code", arguments, progress))
    await asyncio.wait_for(heard.wait(), 60)
    calling.cancel()
    try:
        await calling
    except asyncio.CancelledError:
        pass
    end = time.monotonic() + 60
    while True:
        shown = await call("show_history", {"machine": machine, "limit": 1})
        status = shown["structuredContent"]["instructions"][-1]["status"]
        if status == "interrupted":
            break
        assert time.monotonic() < end, shown
        await asyncio.sleep(0.05)
    kept = await call("run_code", {"machine": machine, "code": "kept"})
    assert value(kept) == "'yes'", kept
