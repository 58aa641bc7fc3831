"""The official Python client 1.x: python v1.py TRANSPORT PLACE TOKEN [start | finish TASK]"""

import asyncio
import os
import sys

import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from work import give_up, work

transport, place, token = sys.argv[1:4]
rest = sys.argv[4:]
headers = {"authorization": f"Bearer {token}"}


def streams():
    if transport == "http":
        client = httpx.AsyncClient(headers=headers, timeout=120)
        return streamable_http_client(f"{place}/mcp", http_client=client)
    if transport == "sse":
        return sse_client(f"{place}/sse", headers=headers)
    env = {**os.environ, "STASIS_TOKEN": token}
    args = ["--url", place, "mcp"]
    return stdio_client(StdioServerParameters(command=os.environ["STASIS"], args=args, env=env))


async def cancelling(session, name, arguments, progress):
    """As this client cancels: by a notification, which it leaves to its user to send."""
    number = session._request_id
    try:
        return await session.call_tool(name, arguments, progress_callback=progress)
    except asyncio.CancelledError:
        params = types.CancelledNotificationParams(requestId=number, reason="given up")
        note = types.CancelledNotification(params=params)
        await session.send_notification(types.ClientNotification(note))
        raise


async def main():
    async with streams() as (read, write, *_), ClientSession(read, write) as session:
        hello = await session.initialize()
        assert hello.serverInfo.name == "stasis" and hello.capabilities.tasks is not None

        async def call(name, arguments, progress=None):
            if progress:
                result = await cancelling(session, name, arguments, progress)
            else:
                result = await session.call_tool(name, arguments)
            return result.model_dump(by_alias=True, exclude_none=True)

        if rest[:1] == ["start"]:
            code = {"code": "import time\ntime.sleep(1)\n'slept'", "timeout_seconds": 60}
            made = await session.experimental.call_tool_as_task("run_code", code)
            print(made.task.taskId)
            return
        if rest[:1] == ["finish"]:
            result = await session.experimental.get_task_result(rest[1], types.CallToolResult)
            print(result.structuredContent["value"])
            return
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert {"run_code", "read_file", "explore"} <= names, names
        machine = await work(call)
        await give_up(call, machine)
        resource = await session.read_resource(f"stasis://machine/{machine}/transcript")
        assert "df.a.sum()" in resource.contents[0].text
        prompt = await session.get_prompt("work-with-machines", {"task": "count"})
        assert prompt.messages[0].content.text.endswith("count")
        print("fine")


asyncio.run(main())
