"""An MCP server for the scenario `approvals`: the one of docs/guides/tools.md."""

import json, sys

TOOLS = [
    {"name": "list_issues", "description": "List all issues.", "inputSchema": {"type": "object"}},
    {
        "name": "delete_issue",
        "description": "Delete an issue for ever.",
        "inputSchema": {
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "its number"}},
            "required": ["number"],
        },
    },
]

def answer(method, params):
    if method == "initialize":
        about = {"name": "issues", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if params["name"] == "list_issues":
        return {"content": [], "structuredContent": {"issues": [4, 7]}}
    text = "deleted %d" % params["arguments"]["number"]
    return {"content": [{"type": "text", "text": text}]}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
