"""Drives the published `forkd-mcp` server as it is through all eleven tools."""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

base, token = sys.argv[1:3]


async def main():
    env = {**os.environ, "FORKD_URL": base, "FORKD_TOKEN": token}
    program = os.path.join(os.path.dirname(sys.executable), "forkd-mcp")
    parameters = StdioServerParameters(command=program, args=[], env=env)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        used = set()

        async def call(name, fails=False, **arguments):
            used.add(name)
            answer = await session.call_tool(name, arguments)
            assert bool(answer.isError) == fails, answer
            return answer.structuredContent

        tag = "mcp-made"
        made = await call(
            "create_snapshot", tag=tag, kernel="-", rootfs="python", boot_wait_secs=1
        )
        assert made["tag"] == tag, made
        await call("create_snapshot", fails=True, tag="x", kernel="/vmlinux", rootfs="/rootfs.ext4")
        assert any(one["tag"] == tag for one in (await call("list_snapshots"))["result"])
        boxes = (await call("spawn_sandboxes", snapshot_tag=tag, n=1))["result"]
        box = boxes[0]["id"]
        assert any(one["id"] == box for one in (await call("list_sandboxes"))["result"])
        assert (await call("get_sandbox", sandbox_id=box))["snapshot_tag"] == tag
        assert (await call("ping_sandbox", sandbox_id=box))["pong"] is True
        done = await call("exec_command", sandbox_id=box, args=["echo", "hi"])
        assert done["stdout"] == "hi\n", done
        assert (await call("eval_code", sandbox_id=box, code="1 + 1"))["result"] == "2"
        await call("exec_command", sandbox_id=box, args=["sh", "-c", "echo ready > /tmp/log"])
        found = await call(
            "wait_for_text", sandbox_id=box, path="/tmp/log", marker="ready", timeout_secs=10
        )
        assert found["found"] is True, found
        kept = await call("branch_sandbox", sandbox_id=box, tag="mcp-kept", mode="live", wait=False)
        assert kept["branched_from"] == box, kept
        assert (await call("kill_sandbox", sandbox_id=box))["killed"] is True
        await call("get_sandbox", fails=True, sandbox_id=box)
        assert tools == used, tools ^ used


asyncio.run(main())
