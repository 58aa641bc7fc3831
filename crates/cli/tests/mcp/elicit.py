"""The official Python client answers calls that wait for a person: elicit.py NOTES

The client runs code over `stasis mcp`, and the server asks it about the calls of that code.
"""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

CODE = "import stasis\nstasis.tools.issues.delete_issue(%d)"


async def main():
    questions = []
    answers = [
        types.ElicitResult(action="accept", content={"answer": "allow"}),
        types.ElicitResult(action="accept", content={"answer": "deny", "note": "not that one"}),
        types.ElicitResult(action="decline"),
    ]

    async def asked(context, params):
        questions.append(params.message)
        return answers[len(questions) - 1]

    server = StdioServerParameters(command=os.environ["STASIS"], args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams, elicitation_callback=asked) as session:
        await session.initialize()

        async def run(number):
            done = await session.call_tool("run_code", {"machine": "work", "code": CODE % number})
            return "\n".join(block.text for block in done.content if block.type == "text")

        assert "deleted 1" in await run(1)
        assert "issues.delete_issue" in questions[0] and '{"number":1}' in questions[0], questions
        assert "not that one" in await run(2)
        assert "ToolDenied" in await run(3)
        assert len(questions) == 3, questions


asyncio.run(main())
