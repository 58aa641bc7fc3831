"""An MCP server over HTTP that means harm; its arguments are a port and how."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, how = int(sys.argv[1]), sys.argv[2]
LARGE = b"x" * 65536


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET

    def json(self, value):
        self.body(json.dumps(value).encode())

    def body(self, text):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def stream(self, kind, first, piece):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(first)
        while True:
            self.wfile.write(piece)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message.get("method"), message.get("id")
        if number is None:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
        elif method == "initialize":
            about = {"name": "hostile", "version": "1"}
            version = message["params"]["protocolVersion"]
            found = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            self.json({"jsonrpc": "2.0", "id": number, "result": found})
        elif method == "tools/list":
            tools = [{"name": "go", "inputSchema": {"type": "object"}}]
            self.json({"jsonrpc": "2.0", "id": number, "result": {"tools": tools}})
        elif method != "tools/call":
            self.json({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}})
        elif how == "endless_json":
            self.stream("application/json", b'{"a": "', LARGE)
        elif how == "endless_event":
            self.stream("text/event-stream", b"data: ", LARGE)
        elif how == "endless_events":
            note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
            self.stream("text/event-stream", b"", b"data: " + json.dumps(note).encode() + b"\n\n")
        elif how == "deep":
            self.body(b"[" * 100000 + b"]" * 100000)
        elif how == "silent":
            time.sleep(3600)
        elif how == "slow":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000000")
            self.end_headers()
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.2)
        elif how == "elsewhere":
            self.send_response(307)
            self.send_header("location", "http://127.0.0.1:%d/stolen" % port)
            self.send_header("content-length", "0")
            self.end_headers()
        elif how == "nonsense":
            self.send_response(500)
            self.send_header("content-length", "8")
            self.end_headers()
            self.wfile.write(b"\xff\x00not it")


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
