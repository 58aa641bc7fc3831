"""The official Python client 2.x: python v2.py TRANSPORT PLACE TOKEN"""

import asyncio
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from work import PATIENCE, give_up, stdio, work

transport, place, token = sys.argv[1:]
headers = {"authorization": f"Bearer {token}"}


def streams():
    if transport == "http":
        client = httpx2.AsyncClient(headers=headers, timeout=PATIENCE)
        return streamable_http_client(f"{place}/mcp", http_client=client)
    if transport == "sse":
        return sse_client(f"{place}/sse", headers=headers, timeout=PATIENCE)
    command, args, env = stdio(transport, place, token)
    return stdio_client(StdioServerParameters(command=command, args=args, env=env))


async def main():
    # the older transport has no way to ask for the newest revision
    mode = "legacy" if transport == "sse" else "auto"
    async with Client(streams(), mode=mode) as client:

        async def call(name, arguments, progress=None):
            result = await client.call_tool(name, arguments, progress_callback=progress)
            return result.model_dump(by_alias=True, exclude_none=True)

        machine = await work(call)
        await give_up(call, machine)
        resource = await client.read_resource(f"stasis://machine/{machine}/transcript")
        assert "df.amount.sum()" in resource.contents[0].text
        print("fine", client.protocol_version)


asyncio.run(main())
