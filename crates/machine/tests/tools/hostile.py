"""An MCP server over standard streams that means harm; its argument says how."""

import json
import sys
import time

how = sys.argv[1]


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tool(name, schema=None):
    return {"name": name, "description": "x", "inputSchema": schema or {"type": "object"}}


def tools():
    if how == "names":
        names = ["__class__", "a.b", "a-b", "class", "def", "1st", "", "x" * 500, "new\nline", "ok"]
        return [tool(name) for name in names]
    if how == "many":
        return [tool("tool%d" % number) for number in range(5000)]
    if how == "schema":
        loop = {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#"}}}
        odd = {"type": 5, "properties": {"__init__": loop, "self": 1, "b-c": {"type": ["string", 3]}}}
        return [tool("odd", odd), tool("list", {"properties": [], "required": "a"})]
    return [tool("go")]


def result(how):
    if how == "huge":
        return '"%s"' % ("x" * (32 << 20))
    if how == "deep":
        return "[" * 100000 + "]" * 100000
    if how == "wide":
        return "[" + "0," * 1000000 + "0]"
    return '""'


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        about = {"name": "hostile", "version": "1"}
        answer = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        send({"jsonrpc": "2.0", "id": number, "result": answer})
    elif method == "tools/list":
        answer = {"tools": tools()}
        if how == "pages":
            answer["nextCursor"] = "again"
        send({"jsonrpc": "2.0", "id": number, "result": answer})
    elif method == "tools/call" and how == "endless":
        while True:
            sys.stdout.write("x" * 65536)
            sys.stdout.flush()
    elif method == "tools/call" and how == "silent":
        time.sleep(3600)
    elif method == "tools/call":
        content = '{"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": %s}}'
        text = '{"jsonrpc": "2.0", "id": %d, "result": %s}\n'
        sys.stdout.write(text % (number, content % result(how)))
        sys.stdout.flush()
    elif number is not None:
        error = {"code": -32601, "message": "no"}
        send({"jsonrpc": "2.0", "id": number, "error": error})
