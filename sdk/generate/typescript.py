"""Types of the JavaScript SDK: interfaces for the received JSON."""

from __future__ import annotations

import textwrap

from schema import Alias, Choice, List, Map, Nullable, Plain, Ref, Struct, Union

PLAIN = {"string": "string", "int": "number", "float": "number", "bool": "boolean"}
PLAIN |= {"any": "unknown", "time": "string"}

HEAD = """/**
 * Types of requests and responses, from the OpenAPI document. Times are RFC 3339.
 *
 * Written by `python3 sdk/generate`; change the document instead.
 *
 * @module
 */
"""


def write(declarations: list) -> str:
    return HEAD + "".join(f"\n{declare(declaration)}" for declaration in declarations)


def declare(declaration) -> str:
    head = comment(declaration.doc, "") + "export "
    match declaration:
        case Choice(name, _, values):
            words = " | ".join(f'"{word}"' for word in values)
            return f"{head}type {name} = {words};\n"
        case Alias(name, _, kind):
            return f"{head}type {name} = {write_type(kind)};\n"
        case Struct(name, _, fields):
            return f"{head}interface {name} {body(fields, '')}\n"
        case Union(name, _, variants):
            parts = "".join(f"\n  | {body(variant.fields, '  ')}" for variant in variants)
            return f"{head}type {name} ={parts};\n"


def body(fields: tuple, indent: str) -> str:
    lines = ["{"]
    for field in fields:
        mark = "" if field.required else "?"
        doc = comment(field.doc, indent + "  ")
        lines.append(f"{doc}{indent}  {field.name}{mark}: {write_type(field.type)};")
    return "\n".join([*lines, indent + "}"])


def comment(text: str, indent: str) -> str:
    text = " ".join(text.split())
    if not text:
        return ""
    if len(text) <= 90:
        return f"{indent}/** {text} */\n"
    lines = "".join(f"{indent} * {line}\n" for line in textwrap.wrap(text, 90))
    return f"{indent}/**\n{lines}{indent} */\n"


def write_type(kind) -> str:
    match kind:
        case Plain(name):
            return PLAIN[name]
        case Ref(name):
            return name
        case List(Nullable(item)):
            return f"({write_type(item)} | null)[]"
        case List(item):
            return f"{write_type(item)}[]"
        case Map(item):
            return f"Record<string, {write_type(item)}>"
        case Nullable(item):
            return f"{write_type(item)} | null"
