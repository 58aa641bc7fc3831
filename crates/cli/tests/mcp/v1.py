"""The official Python client 1.x: python v1.py TRANSPORT PLACE TOKEN [start CODE | finish TASK]"""

import asyncio
import sys

import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from work import PATIENCE, give_up, stdio, work

transport, place, token, *rest = sys.argv[1:]
headers = {"authorization": f"Bearer {token}"}


def streams():
    if transport == "http":
        client = httpx.AsyncClient(headers=headers, timeout=PATIENCE)
        return streamable_http_client(f"{place}/mcp", http_client=client)
    if transport == "sse":
        return sse_client(f"{place}/sse", headers=headers, timeout=PATIENCE)
    command, args, env = stdio(transport, place, token)
    return stdio_client(StdioServerParameters(command=command, args=args, env=env))


async def cancelling(session, name, arguments, progress):
    """Cancels like this client: by a notification, which it leaves to its user to send."""
    number = session._request_id
    try:
        return await session.call_tool(name, arguments, progress_callback=progress)
    except asyncio.CancelledError:
        params = types.CancelledNotificationParams(requestId=number, reason="given up")
        note = types.CancelledNotification(params=params)
        await session.send_notification(types.ClientNotification(note))
        raise


async def session_of_work(session):
    async def call(name, arguments, progress=None):
        if progress:
            result = await cancelling(session, name, arguments, progress)
        else:
            result = await session.call_tool(name, arguments)
        return result.model_dump(by_alias=True, exclude_none=True)

    names = {tool.name for tool in (await session.list_tools()).tools}
    assert {"run_code", "read_file", "explore"} <= names, names
    machine = await work(call)
    await give_up(call, machine)
    resource = await session.read_resource(f"stasis://machine/{machine}/transcript")
    assert "df.amount.sum()" in resource.contents[0].text
    prompt = await session.get_prompt("work-with-machines", {"task": "count"})
    assert prompt.messages[0].content.text.endswith("count")
    print("fine")


async def main():
    async with streams() as (read, write, *_), ClientSession(read, write) as session:
        hello = await session.initialize()
        assert hello.serverInfo.name == "stasis" and hello.capabilities.tasks is not None
        if rest[:1] == ["start"]:
            arguments = {"code": rest[1], "timeout_seconds": 600}
            made = await session.experimental.call_tool_as_task("run_code", arguments)
            print(made.task.taskId)
        elif rest[:1] == ["finish"]:
            result = await session.experimental.get_task_result(rest[1], types.CallToolResult)
            print(result.content[0].text)
        else:
            await session_of_work(session)


asyncio.run(main())
