"""A small MCP server over standard streams, or over HTTP on a port, made with the official package.

Each call is noted in the file that `STASIS_TOOL_LOG` names.
"""

import base64
import os
import sys
import time

from mcp.server.fastmcp import Context, FastMCP, Image
from pydantic import BaseModel

server = FastMCP("issues", log_level="ERROR")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def note(text):
    with open(os.environ["STASIS_TOOL_LOG"], "a") as log:
        print(text, file=log)


class Issue(BaseModel):
    number: int
    title: str
    labels: list[str] = []


@server.tool()
def create_issue(title: str, labels: list[str] = [], draft: bool = False) -> Issue:
    """Create an issue.

    It gets the next number.
    """
    note("create_issue " + title)
    return Issue(number=7, title=title, labels=labels)


@server.tool()
def delete_issue(number: int) -> str:
    """Delete an issue for ever."""
    note("delete_issue %d" % number)
    return "deleted %d" % number


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it is broken")


@server.tool()
def picture() -> Image:
    """A picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def environment() -> list[str]:
    """Names of the variables of this process."""
    return sorted(os.environ)


@server.tool()
def slow(seconds: float) -> str:
    """Answer after a while."""
    note("slow")
    time.sleep(seconds)
    return "late"


@server.tool()
def crash() -> str:
    """End the server."""
    note("crash")
    os._exit(3)


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool."""

    def grown() -> int:
        """A tool that was added."""
        return 42

    server.add_tool(grown)
    await context.session.send_tool_list_changed()
    return "grown"


@server.tool(name="class")
def keyword_(from_: int = 1) -> int:
    """A tool whose name is a word of Python."""
    return from_


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.settings.port = int(sys.argv[1])
        server.run(sys.argv[2] if len(sys.argv) > 2 else "streamable-http")
    else:
        server.run("stdio")
