"""An OAuth 2.1 authorization server and an MCP server that takes only its tokens.

Arguments: a port, a file for notes, and how many seconds a token is valid. It implements protected
resource metadata (RFC 9728), server metadata (RFC 8414), dynamic registration (RFC 7591), the code
grant with PKCE, rotation of refresh tokens and client credentials, and refuses everything else.
"""

import base64
import hashlib
import json
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

port, notes, lasts = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
here = "http://127.0.0.1:%d" % port
lock = threading.Lock()
clients = {"given": {"secret": "given-secret", "uris": None}}
codes, refreshers, tokens = {}, {}, {}


def note(text):
    with lock, open(notes, "a") as log:
        print(text, file=log)


def issue(client, resource, refresh):
    token = "token-" + secrets.token_hex(8)
    tokens[token] = (time.time() + lasts, resource)
    answer = {"access_token": token, "token_type": "Bearer", "expires_in": lasts}
    if refresh:
        answer["refresh_token"] = "refresh-" + secrets.token_hex(8)
        refreshers[answer["refresh_token"]] = (client, resource)
    return answer


def granted(form):
    client = clients.get(form.get("client_id"))
    if not client or (client["secret"] and client["secret"] != form.get("client_secret")):
        return {"error": "invalid_client"}
    name, kind, resource = form["client_id"], form.get("grant_type"), form.get("resource")
    note(kind)
    if resource != here + "/mcp":
        return {"error": "invalid_target"}
    if kind == "client_credentials" and client["secret"]:
        time.sleep(0.3)
        return issue(name, resource, False)
    if kind == "refresh_token":
        known = refreshers.pop(form.get("refresh_token"), None)
        return issue(name, resource, True) if known == (name, resource) else {"error": "invalid_grant"}
    code = codes.pop(form.get("code"), None) if kind == "authorization_code" else None
    if not code:
        return {"error": "invalid_grant"}
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    fits = (code["client_id"], code["redirect_uri"], code["code_challenge"])
    if fits != (name, form.get("redirect_uri"), challenge):
        return {"error": "invalid_grant"}
    return issue(name, resource, True)


def answered(method, params):
    if method == "initialize":
        about = {"name": "guarded", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return {"tools": [{"name": "echo", "description": "Return the text.", "inputSchema": schema}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, value=None, **headers):
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for key, own in headers.items():
            self.send_header(key.replace("_", "-"), own)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refused(self):
        """Whether the request has no valid token; then it is answered."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        ends, resource = tokens.get(bearer, (0, None))
        if ends > time.time() and resource == here + "/mcp":
            return False
        at = here + "/.well-known/oauth-protected-resource/mcp"
        self.send(401, {"error": "invalid_token"}, www_authenticate='Bearer resource_metadata="%s"' % at)
        return True

    def do_GET(self):
        url = urlsplit(self.path)
        query = {key: all[0] for key, all in parse_qs(url.query).items()}
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            self.send(200, {"resource": here + "/mcp", "authorization_servers": [here]})
        elif url.path == "/.well-known/oauth-authorization-server":
            self.send(200, {
                "issuer": here, "authorization_endpoint": here + "/authorize",
                "token_endpoint": here + "/token", "registration_endpoint": here + "/register",
                "code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"],
            })
        elif url.path == "/authorize":
            client = clients.get(query.get("client_id"))
            uri = query.get("redirect_uri", "")
            known = client and (uri in client["uris"] if client["uris"] else uri.startswith("http://127.0.0.1:"))
            if not known or query.get("code_challenge_method") != "S256" or query.get("response_type") != "code":
                return self.send(400, {"error": "invalid_request"})
            note("authorize %s" % query.get("scope"))
            code = secrets.token_hex(8)
            codes[code] = query
            back = urlencode({"code": code, "state": query["state"], "iss": here})
            self.send(302, None, location=uri + "?" + back)
        elif url.path == "/revoke":
            tokens.clear()
            self.send(200, {})
        elif url.path == "/mcp" and not self.refused():
            self.send(405, {})
        elif url.path != "/mcp":
            self.send(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        if self.path == "/register":
            asked = json.loads(body)
            name = "client-" + secrets.token_hex(4)
            clients[name] = {"secret": None, "uris": asked["redirect_uris"]}
            note("register")
            self.send(201, {"client_id": name, **asked})
        elif self.path == "/token":
            answer = granted({key: all[0] for key, all in parse_qs(body).items()})
            self.send(400 if "error" in answer else 200, answer)
        elif self.path == "/mcp" and not self.refused():
            message = json.loads(body)
            if "id" not in message:
                return self.send(202)
            found = answered(message["method"], message.get("params"))
            own = {"result": found} if found is not None else {"error": {"code": -32601, "message": "no"}}
            self.send(200, {"jsonrpc": "2.0", "id": message["id"], **own})
        elif self.path != "/mcp":
            self.send(404, {})


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
