"""Types of the Python SDK: frozen dataclasses that read themselves from JSON."""

from __future__ import annotations

import keyword
import textwrap

from schema import Alias, Choice, Field, List, Map, Nullable, Plain, Ref, Struct, Union

PLAIN = {"string": "str", "int": "int", "float": "float", "bool": "bool"}
PLAIN |= {"any": "Any", "time": "datetime"}

HEAD = '''"""Types of the service, from its OpenAPI document.

Written by `python3 sdk/generate`; change the document instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Literal, Optional

from ._json import Model, each, time
'''


def write(declarations: list) -> str:
    simple = {d.name: d for d in declarations if isinstance(d, (Choice, Alias))}
    parts = [HEAD]
    for declaration in declarations:
        if isinstance(declaration, Choice):
            words = ", ".join(f'"{word}"' for word in declaration.values)
            parts.append(f"{declaration.name} = Literal[{words}]\n")
        elif isinstance(declaration, Alias):
            parts.append(f"{declaration.name} = {hint(declaration.type)}\n")
    for declaration in declarations:
        if isinstance(declaration, Union):
            parts.append(struct(declaration.flat(), simple))
        elif isinstance(declaration, Struct):
            parts.append(struct(declaration, simple))
    return "\n".join(parts)


def hint(kind) -> str:
    match kind:
        case Plain(name):
            return PLAIN[name]
        case Ref(name):
            return name
        case List(item):
            return f"List[{hint(item)}]"
        case Map(item):
            return f"Dict[str, {hint(item)}]"
        case Nullable(item):
            return f"Optional[{hint(item)}]"


def is_optional(field: Field) -> bool:
    """Whether an absent field is None: absent maps and lists are empty instead."""
    return not field.required and not isinstance(field.type, (List, Map, Nullable))


def own_name(field: Field) -> str:
    """A field's name as an attribute."""
    return f"{field.name}_" if keyword.iskeyword(field.name) else field.name


def attribute(field: Field) -> str:
    """A field's line; fields with a default come after those without."""
    name, kind = own_name(field), hint(field.type)
    if field.required:
        return f"    {name}: {kind}\n"
    if isinstance(field.type, (List, Map)):
        empty = "list" if isinstance(field.type, List) else "dict"
        return f"    {name}: {kind} = field(default_factory={empty})\n"
    kind = f"Optional[{kind}]" if is_optional(field) else kind
    return f"    {name}: {kind} = None\n"


def struct(declaration: Struct, simple: dict) -> str:
    fields = sorted(declaration.fields, key=lambda field: not field.required)
    lines = ["\n@dataclass(frozen=True)\n", f"class {declaration.name}(Model):\n"]
    if declaration.doc:
        lines.append(docstring(declaration.doc))
    for field in fields:
        lines.append(attribute(field))
        if field.doc:
            lines.append(docstring(field.doc))
    lines += ["\n    @classmethod\n", f"    def from_json(cls, data: Any) -> {declaration.name}:\n"]
    lines.append("        return cls(\n")
    lines += [f"            {own_name(field)}={read(field, simple)},\n" for field in fields]
    lines.append("        )\n")
    return "".join(lines)


def docstring(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= 88:
        return f'    """{text}"""\n'
    wrapped = textwrap.wrap(text, 88)
    return textwrap.indent('"""' + "\n".join(wrapped) + '\n"""', "    ") + "\n"


def read(field: Field, simple: dict) -> str:
    if field.required:
        return convert(field.type, f'data["{field.name}"]', simple)
    kind = field.type.item if isinstance(field.type, Nullable) else field.type
    source = f'data.get("{field.name}")'
    if isinstance(kind, (List, Map)) and not isinstance(field.type, Nullable):
        empty = "[]" if isinstance(kind, List) else "{}"
        return convert(kind, f"({source} or {empty})", simple)
    return convert(Nullable(kind), source, simple)


def convert(kind, source: str, simple: dict) -> str:
    match kind:
        case Plain("time"):
            return f"time({source})"
        case Plain(_):
            return source
        case Ref(name):
            return source if name in simple else f"{name}.from_json({source})"
        case List(item):
            if (call := converter(item, simple)) is None:
                return f"list({source})"
            return f"each({call}, {source})"
        case Map(item):
            if converter(item, simple) is not None:
                raise ValueError(f"a map of {item}")
            return f"dict({source})"
        case Nullable(item):
            inner = convert(item, source, simple)
            return source if inner == source else f"None if {source} is None else {inner}"


def converter(kind, simple: dict) -> str | None:
    """A function from JSON to a type; none if the JSON can be used as it is."""
    match kind:
        case Plain("time"):
            return "time"
        case Ref(name) if name not in simple:
            return f"{name}.from_json"
        case Plain(_) | Ref(_):
            return None
    raise ValueError(f"a list of {kind}")
