"""Tools of upstream servers: `stasis.tools.SERVER.TOOL(...)`.

    attribute ─► list of tools, from the host ─► a function with a signature, made when first used
    call ─► arguments as JSON ─► host: policy, perhaps a person, server ─► value or ToolError

The host answers over the control socket while the instruction waits, so a machine needs no network
for this. Meanwhile the machine may leave memory and come back: then a wake order comes first.
Only the main thread of the agent can ask, while an instruction runs.
"""

from .own import __builtins__
from .channel import decode, encode
from _thread import get_ident
from binascii import a2b_base64
from inspect import Parameter, Signature
from keyword import iskeyword
from os import _exit
from stasis import ToolDenied, ToolError, ToolMedia
import stasis

DEEPEST = 60
MOST_VALUES = 100000
LONGEST = 1 << 20
MOST_PARAMETERS = 200
LONGEST_TEXT = 4000
TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": None,
}


class Desk:
    """Asks the host, one question at a time."""

    def __init__(self, session):
        self.session = session
        self.wake = None
        self.allowed = False
        self.asking = False
        self.last = 0

    def fault(self):
        """Why nothing can be asked now, or None."""
        session = self.session
        if not session.channel.ours():
            return "a child process cannot call tools; the machine's own process can"
        if get_ident() != session.gate.main:
            return "tools are called from the main thread; call it there and pass the result on"
        if session.running is None or not self.allowed:
            return "tools can be called only while an instruction runs"
        if self.asking:
            return "another call is under way"
        return None

    def ask(self, what):
        fault = self.fault()
        if fault is not None:
            raise ToolError(fault, code="tool.unavailable")
        self.asking = True
        try:
            return self.answer(what)
        finally:
            self.asking = False

    def answer(self, what):
        seq, channel = self.session.running[0], self.session.channel
        self.last += 1
        self.session.streams.flush()
        channel.send({"type": "tool", "seq": seq, "id": self.last, "what": what})
        while True:
            line = channel.receive()
            if line is None:
                _exit(0)
            order = decode(line.decode())
            if order["op"] == "wake":
                self.wake(order)
            elif order["op"] == "tool" and order["seq"] == seq and order["id"] == self.last:
                return order["answer"]


class Tools:
    """The servers whose tools this machine can call."""

    def __init__(self, desk):
        self._desk = desk
        self._servers = {}

    def _refresh(self):
        answer = self._desk.ask({"kind": "servers"})
        known = self._servers
        names = {attribute(name): name for name in answer.get("servers", ())}
        self._servers = {
            own: known.get(own) or Server(self._desk, name) for own, name in names.items()
        }

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._servers:
            self._refresh()
        if name not in self._servers:
            known = ", ".join(self._servers) or "none"
            raise AttributeError("there is no tool server %r; there are: %s" % (name, known))
        return self._servers[name]

    def __getitem__(self, name):
        return getattr(self, attribute(name))

    def __dir__(self):
        if self._desk.fault() is None:
            self._refresh()
        return list(self._servers)

    def __iter__(self):
        self._refresh()
        return iter([server._name for server in self._servers.values()])

    def __repr__(self):
        return "<tools of %s>" % (", ".join(dir(self)) or "no server")


class Server:
    """One server. Its tools are attributes; `server["name"]` takes any name."""

    def __init__(self, desk, name):
        self._desk = desk
        self._name = name
        self._etag = None
        self._seq = None
        self._tools = {}
        self._names = {}

    def _refresh(self):
        """Reads the list, at most once in an instruction."""
        running = self._desk.session.running
        if running is not None and running[0] == self._seq:
            return
        answer = self._desk.ask({"kind": "list", "server": self._name, "etag": self._etag})
        if answer["kind"] == "failed":
            raise refusal(answer, self._name)
        if answer["kind"] == "tools":
            self._etag = answer["etag"]
            self._tools = {tool["name"]: Tool(self, tool) for tool in answer["tools"]}
            self._names = {}
            for name in self._tools:
                self._names.setdefault(attribute(name), []).append(name)
        self._seq = running[0] if running is not None else None

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._refresh()
        found = self._names.get(name, ())
        if len(found) > 1:
            words = "%r means several tools of %s: write %s[name] with one of %s"
            raise AttributeError(words % (name, self._name, self._name, ", ".join(found)))
        if not found:
            raise AttributeError("tool server %r has no tool %r" % (self._name, name))
        return self._tools[found[0]].function()

    def __getitem__(self, name):
        self._refresh()
        if name not in self._tools:
            raise KeyError("tool server %r has no tool %r" % (self._name, name))
        return self._tools[name].function()

    def __dir__(self):
        if self._desk.fault() is None:
            self._refresh()
        return [name for name, found in self._names.items() if len(found) == 1]

    def __iter__(self):
        self._refresh()
        return iter(list(self._tools))

    def __repr__(self):
        return "<tool server %s: %s>" % (self._name, ", ".join(self._tools) or "not read yet")

    def _call(self, tool, arguments):
        what = {"kind": "call", "server": self._name, "tool": tool}
        what["arguments"] = plain(arguments, 0, [MOST_VALUES])
        if len(encode(what)) > LONGEST:
            raise ToolError("the arguments have more than 1 MiB", code="tool.too_large")
        return self._desk.ask(what)


class Tool:
    def __init__(self, server, told):
        self.server = server
        self.told = told
        self.made = None

    def function(self):
        if self.made is None:
            self.made = make(self.server, self.told)
        return self.made


def make(server, told):
    """A function that calls a tool."""
    raw, schema = told["name"], told.get("input_schema") or {}
    known, order = parameters(schema)
    extra = schema.get("additionalProperties", not known)

    def call(*positional, **named):
        arguments = arranged(call.__name__, known, order, extra, positional, named)
        return value_of(server._call(raw, arguments), told, server._name)

    call.__name__ = attribute(raw)
    call.__qualname__ = "%s.%s" % (attribute(server._name), call.__name__)
    call.__module__ = "stasis.tools"
    call.__doc__ = documented(told, known)
    call.__signature__ = signature(known, order, extra)
    return call


def parameters(schema):
    """The parameters of a tool by their names in code, and the order of the required ones."""
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = list(dict.fromkeys(filter(is_text, required))) if isinstance(required, list) else []
    known = {}
    for raw, about in list(properties.items())[:MOST_PARAMETERS]:
        name, about = attribute(raw), about if isinstance(about, dict) else {}
        while name in known:
            name += "_"
        known[name] = (raw, about, raw in required)
    names = {raw: name for name, (raw, _, _) in known.items()}
    return known, [names[raw] for raw in required if raw in names]


def arranged(function, known, order, extra, positional, named):
    """The arguments by the names the server knows."""
    if len(positional) > len(order):
        words = "%s() takes at most %d arguments without a name, not %d"
        raise TypeError(words % (function, len(order), len(positional)))
    given = dict(zip(order, positional))
    raws = {raw: name for name, (raw, _, _) in known.items()}
    for name, value in named.items():
        own = name if name in known else raws.get(name, name)
        if own in given:
            raise TypeError("%s() got two values for %r" % (function, name))
        if own not in known and not extra:
            words = "%s() has no argument %r; it has: %s"
            raise TypeError(words % (function, name, ", ".join(known) or "none"))
        given[own] = value
    missing = [name for name in order if known[name][2] and name not in given]
    if missing:
        raise TypeError("%s() needs: %s" % (function, ", ".join(missing)))
    return {known[name][0] if name in known else name: value for name, value in given.items()}


def signature(known, order, extra):
    made = []
    for name in order + [name for name in known if name not in order]:
        _, about, required = known[name]
        default = Parameter.empty
        place = Parameter.POSITIONAL_OR_KEYWORD if required else Parameter.KEYWORD_ONLY
        if not required:
            default = about.get("default", ...)
            if not isinstance(default, (str, int, float, bool, type(None))):
                default = ...
        kind = about.get("type")
        annotation = TYPES.get(kind, Parameter.empty) if isinstance(kind, str) else Parameter.empty
        made.append(Parameter(name, place, default=default, annotation=annotation))
    if extra and "arguments" not in known:
        made.append(Parameter("arguments", Parameter.VAR_KEYWORD))
    return Signature(made)


def documented(told, known):
    lines = [short(told.get("description") or told["name"])]
    if known:
        lines += ["", "Arguments:"]
    for name, (_, about, required) in known.items():
        kind = about.get("type")
        words = kind if isinstance(kind, str) else "any"
        words += ", required" if required else ""
        lines.append("    %s (%s) %s" % (name, words, short(about.get("description") or "")))
    return "\n".join(line.rstrip() for line in lines)


def is_text(value):
    return isinstance(value, str)


def short(text):
    text = text if isinstance(text, str) else str(text)
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."


def attribute(name):
    """A name as code can write it: letters, digits and underscores, not reserved by Python."""
    text = "".join(one if one.isascii() and one.isalnum() else "_" for one in name)
    text = text.lstrip("_") or "tool"
    text = "n" + text if text[0].isdigit() else text
    return text + "_" if iskeyword(text) else text


def plain(value, depth, left):
    """A copy of a value of user code that JSON can hold."""
    left[0] -= 1
    if left[0] < 0:
        raise ToolError("the arguments have more than 100,000 values", code="tool.too_large")
    if depth > DEEPEST:
        raise ToolError("the arguments are nested deeper than 60", code="tool.too_large")
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, (bool, str)):
        return value if not isinstance(value, str) else str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ToolError("JSON has no %r" % value, code="tool.invalid")
        return float(value)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ToolError("the keys of an argument are text", code="tool.invalid")
        return {str.__str__(key): plain(one, depth + 1, left) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one, depth + 1, left) for one in value]
    raise ToolError("an argument is a %s, which JSON cannot hold" % kind.__name__, "tool.invalid")


def refusal(answer, server, tool=None):
    code = answer["code"]
    kind = ToolDenied if code in ("tool.denied", "tool.expired") else ToolError
    return kind(answer["message"], code=code, server=server, tool=tool)


def value_of(answer, told, server):
    """The result of a call, returned or raised."""
    name = told["name"]
    if answer["kind"] == "failed":
        raise refusal(answer, server, name)
    blocks = [block_of(block) for block in answer["content"]]
    if answer["is_error"]:
        text = "\n".join(block for block in blocks if isinstance(block, str))
        raise ToolError(text or "the tool failed", "tool.failed", server, name, blocks)
    structured = answer.get("structured")
    if structured is not None:
        return structured["result"] if is_wrapped(told, structured) else structured
    return blocks[0] if len(blocks) == 1 else blocks or None


def is_wrapped(told, structured):
    """Whether a server put a plain value into an object, as the SDKs for Python do."""
    schema = told.get("output_schema") or {}
    named = schema.get("title") == told["name"] + "Output"
    marked = schema.get("x-fastmcp-wrap-result") is True
    return isinstance(structured, dict) and list(structured) == ["result"] and (named or marked)


def block_of(block):
    kind = block.get("type")
    if kind == "text":
        return block.get("text", "")
    if kind in ("image", "audio"):
        return media(block.get("data"), block.get("mimeType")) or block
    resource = block.get("resource") if kind == "resource" else None
    if isinstance(resource, dict):
        if isinstance(resource.get("text"), str):
            return resource["text"]
        return media(resource.get("blob"), resource.get("mimeType")) or resource
    return block


def media(data, mime):
    try:
        mime = mime if isinstance(mime, str) else "application/octet-stream"
        return ToolMedia(a2b_base64(data), mime)
    except (TypeError, ValueError):
        return None


def install(session):
    """Makes `stasis.tools`. Returns what asks the host."""
    desk = Desk(session)
    stasis.tools = Tools(desk)
    return desk
