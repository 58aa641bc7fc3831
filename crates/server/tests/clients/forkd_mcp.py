"""Drives the published `forkd-mcp` server unchanged through all eleven tools, then our own set of
the same names, and compares their arguments."""

import asyncio
import os
import sys

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

base, token, service = sys.argv[1:4]


def published():
    env = {**os.environ, "FORKD_URL": base, "FORKD_TOKEN": token, "FORKD_HTTP_TIMEOUT": "600"}
    program = os.path.join(os.path.dirname(sys.executable), "forkd-mcp")
    return stdio_client(StdioServerParameters(command=program, args=[], env=env))


def ours():
    headers = {"authorization": f"Bearer {token}"}
    client = httpx.AsyncClient(headers=headers, timeout=600)
    return streamable_http_client(f"{service}/mcp/forkd", http_client=client)


def taken(tool):
    """The arguments of a tool: names, required ones, and defaults."""
    schema = tool.inputSchema
    defaults = {name: about.get("default") for name, about in schema.get("properties", {}).items()}
    return defaults, sorted(schema.get("required", []))


async def drive(session, prefix):
    await session.initialize()
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    used = set()

    async def call(name, fails=False, **arguments):
        used.add(name)
        answer = await session.call_tool(name, arguments)
        assert bool(answer.isError) == fails, answer
        return answer.structuredContent

    tag = f"{prefix}-made"
    made = await call("create_snapshot", tag=tag, kernel="-", rootfs="python", boot_wait_secs=1)
    assert made["tag"] == tag, made
    await call("create_snapshot", fails=True, tag="x", kernel="/vmlinux", rootfs="/rootfs.ext4")
    assert any(one["tag"] == tag for one in (await call("list_snapshots"))["result"])
    boxes = (await call("spawn_sandboxes", snapshot_tag=tag, n=2))["result"]
    assert [one["memory_limit_mib"] for one in boxes] == [256, 256], boxes
    box = boxes[0]["id"]
    assert any(one["id"] == box for one in (await call("list_sandboxes"))["result"])
    assert (await call("get_sandbox", sandbox_id=box))["snapshot_tag"] == tag
    assert (await call("ping_sandbox", sandbox_id=box))["pong"] is True
    done = await call("exec_command", sandbox_id=box, args=["sh", "-c", "echo hi; exit 3"])
    assert (done["stdout"], done["exit_code"]) == ("hi\n", 3), done
    assert (await call("eval_code", sandbox_id=box, code="x = 1"))["result"] == "None"
    assert (await call("eval_code", sandbox_id=box, code="x + 1"))["result"] == "2"
    assert (await call("eval_code", sandbox_id=box, code="1/0"))["exit_code"] == 1
    await call("exec_command", sandbox_id=box, args=["sh", "-c", "echo ready > /tmp/log"])
    wait = {"sandbox_id": box, "path": "/tmp/log"}
    found = await call("wait_for_text", marker="ready", timeout_secs=600, **wait)
    assert found["found"] is True and found["last_excerpt"] == "ready\n", found
    found = await call("wait_for_text", marker="never", timeout_secs=0.3, **wait)
    assert found["found"] is False, found
    kept = await call(
        "branch_sandbox", sandbox_id=box, tag=f"{prefix}-kept", mode="live", wait=False
    )
    assert kept["branched_from"] == box, kept
    again = (await call("spawn_sandboxes", snapshot_tag=f"{prefix}-kept"))["result"][0]["id"]
    assert (await call("eval_code", sandbox_id=again, code="x"))["result"] == "1"
    assert (await call("kill_sandbox", sandbox_id=box)) == {"id": box, "killed": True}
    await call("get_sandbox", fails=True, sandbox_id=box)
    await call("spawn_sandboxes", fails=True, snapshot_tag="nothing")
    for one in (boxes[1]["id"], again):
        await call("kill_sandbox", sandbox_id=one)
    assert set(tools) == used, set(tools) ^ used
    return tools


async def session(streams, prefix):
    async with streams as (read, write, *_), ClientSession(read, write) as session:
        return await drive(session, prefix)


async def main():
    theirs = await session(published(), "mcp")
    own = await session(ours(), "own")
    assert list(map(taken, map(theirs.get, sorted(theirs)))) == list(
        map(taken, map(own.get, sorted(own)))
    ), {name: (taken(theirs[name]), taken(own[name])) for name in own}
    for tool in own.values():
        assert tool.outputSchema and tool.description and tool.annotations, tool


asyncio.run(main())
