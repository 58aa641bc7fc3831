"""The official Python client against `stasis mcp-v8`: python v8.py stdio|URL"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

FLAGS = ["mcp-v8", "--heap-store", "dir", "--session-id", "py", "--execution-timeout", "20"]


def streams(place):
    if place != "stdio":
        return streamable_http_client(f"{place}/mcp")
    server = StdioServerParameters(command=os.environ["STASIS"], args=FLAGS, env=dict(os.environ))
    return stdio_client(server)


async def main(place):
    async with streams(place) as (read, write, *_), ClientSession(read, write) as session:
        greeting = await session.initialize()
        assert greeting.instructions.startswith("JavaScript execution service"), greeting

        async def call(name, **arguments):
            result = await session.call_tool(name, arguments)
            return json.loads(result.content[0].text)

        async def run(code, **more):
            answer = await call("run_js", code=code, **more)
            id = answer["execution_id"]
            while True:
                info = await call("get_execution", execution_id=id)
                if info["status"] != "running":
                    break
                await asyncio.sleep(0.02)
            page = await call("get_execution_output", execution_id=id)
            return info, page["data"]

        names = [tool.name for tool in (await session.list_tools()).tools]
        assert names == sorted(names) and len(names) == 13, names
        first, _ = await run("globalThis.list = [1]", tags={"by": "python"})
        failed, _ = await run("list.push(2); throw new Error('no')")
        assert failed["status"] == "failed" and failed["heap"] is None, failed
        _, printed = await run("list.push(3); console.log(JSON.stringify(list))")
        assert printed == "[1,3]", printed
        _, printed = await run("console.log(list.length)", heap=first["heap"])
        assert printed == "1", printed
        hot, _ = await run("while (true) {}", execution_timeout_secs=1)
        assert hot["status"] == "timed_out", hot
        await run("artifact('note', 'text/plain', 'kept')")
        shown = await session.call_tool("get_artifact", {"key": "note"})
        assert shown.content[1].text == "kept", shown
        assert "note" in [one["key"] for one in (await call("list_artifacts"))["artifacts"]]
        assert await call("get_heap_tags", heap=first["heap"]) == {"tags": {"by": "python"}}
        assert (await call("set_heap_tags", heap=first["heap"], tags={"a": "1"}))["ok"]
        found = await call("query_heaps_by_tags", tags={"a": "1"})
        assert found["results"] == [{"heap": first["heap"], "tags": {"a": "1"}}], found
        assert (await call("delete_heap_tags", heap=first["heap"]))["ok"]
        assert (await call("list_sessions"))["sessions"], "a session"
        log = (await call("list_session_snapshots"))["entries"]
        assert log[0]["output_heap"] == first["heap"], log
        id = (await call("run_js", code="await new Promise(() => {})"))["execution_id"]
        assert await call("cancel_execution", execution_id=id) == {"ok": True}
        all = (await call("list_executions"))["executions"]
        assert id in [one["execution_id"] for one in all]
        assert len((await session.list_resources()).resources) == 4
    print("fine")


asyncio.run(main(sys.argv[1]))
