"""Types of the Rust SDK: structs that serde reads and writes."""

from __future__ import annotations

import re
import textwrap

from schema import Alias, Choice, Field, List, Map, Nullable, Plain, Ref, Struct, Union

PLAIN = {"string": "String", "int": "u64", "float": "f64", "bool": "bool"}
PLAIN |= {"any": "serde_json::Value", "time": "Timestamp"}
KEYWORDS = {"type", "match", "move", "ref", "self", "use", "where", "loop", "in", "as", "mod"}

WRITTEN = "Written by `python3 sdk/generate`; change the document instead."

INDEX = f"""//! Types of requests and responses, from the OpenAPI document.
//!
//! {WRITTEN} Fields and words only ever
//! join: what this version does not know is passed over, or [`Newer`](State::Newer).
"""

PARTS = f"""//! Types of %s.
//!
//! {WRITTEN}

"""


def write(declarations: list, tags: dict[str, set[str]]) -> dict[str, str]:
    """Files by name: one for the types of each tag."""
    defaults = with_default(declarations)
    names = sorted(tags)
    index = INDEX + "\n" + "".join(f"mod {tag};\n" for tag in names)
    files = {"mod.rs": index + "\n" + "".join(f"pub use {tag}::*;\n" for tag in names)}
    for tag in names:
        own = [one for one in declarations if one.name in tags[tag]]
        files[f"{tag}.rs"] = part(tag, own, defaults)
    return files


def part(tag: str, declarations: list, defaults: set[str]) -> str:
    body = "".join(f"\n{declare(one, defaults)}" for one in declarations)
    foreign = referred(declarations) - {one.name for one in declarations}
    uses = ["use jiff::Timestamp;\n"] if "Timestamp" in body else []
    uses += ["use serde::{Deserialize, Serialize};\n"]
    uses += ["use std::collections::BTreeMap;\n"] if "BTreeMap" in body else []
    uses += [f"use super::{{{', '.join(sorted(foreign))}}};\n"] if foreign else []
    return PARTS % tag + "".join(sorted(uses)) + body


def referred(declarations: list) -> set[str]:
    """Names of the types these refer to."""
    found, left = set(), list(declarations)
    while left:
        match left.pop():
            case Struct(_, _, fields):
                left += [field.type for field in fields]
            case Union(_, _, variants):
                left += variants
            case Alias(_, _, kind) | List(kind) | Map(kind) | Nullable(kind):
                left.append(kind)
            case Ref(name):
                found.add(name)
    return found


def with_default(declarations: list) -> set[str]:
    """Types that can be empty: all their required fields can be empty, too."""
    structs = {d.name: d for d in declarations if isinstance(d, Struct)}
    good = {d.name for d in declarations if isinstance(d, Union)}
    good |= {d.name for d in declarations if isinstance(d, Alias)}

    def fits(kind) -> bool:
        return not isinstance(kind, Ref) or kind.name in good
    before = -1
    while before != len(good):
        before = len(good)
        for name, declaration in structs.items():
            required = (field.type for field in declaration.fields if field.required)
            if all(fits(kind) and kind != Plain("time") for kind in required):
                good.add(name)
    return good


def declare(declaration, defaults: set[str]) -> str:
    head = comment(declaration.doc, "")
    match declaration:
        case Choice(name, _, values):
            return head + choice(name, values)
        case Alias(name, _, kind):
            return f"{head}pub type {name} = {write_type(kind)};\n"
        case Union():
            return head + struct(declaration.flat(), defaults)
        case Struct():
            return head + struct(declaration, defaults)


def choice(name: str, values: tuple) -> str:
    lines = "".join(f"{renamed(value)}    {camel(value)},\n" for value in values)
    return (
        "#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]\n"
        '#[serde(rename_all = "snake_case")]\n#[non_exhaustive]\n'
        f"pub enum {name} {{\n{lines}    /// A word of a newer service.\n"
        "    #[serde(other)]\n    Newer,\n}\n"
    )


def renamed(word: str) -> str:
    """The serde attribute of a variant whose name differs."""
    return "" if re.fullmatch("[a-z_]+", word) else f'    #[serde(rename = "{word}")]\n'


def camel(word: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[._-]", word))


def struct(declaration: Struct, defaults: set[str]) -> str:
    derives = ["Debug", "Clone", "PartialEq", "Serialize", "Deserialize"]
    if declaration.name in defaults:
        derives.insert(2, "Default")
    head = f"#[derive({', '.join(derives)})]\n"
    body = "".join(member(field) for field in declaration.fields)
    return f"{head}pub struct {declaration.name} {{\n{body}}}\n"


def member(field: Field) -> str:
    kind, attributes = write_type(field.type), ""
    name = f"r#{field.name}" if field.name in KEYWORDS else field.name
    if not field.required:
        empty = "Option::is_none"
        if isinstance(field.type, List):
            empty = "Vec::is_empty"
        elif isinstance(field.type, Map):
            empty = "BTreeMap::is_empty"
        elif not isinstance(field.type, Nullable):
            kind = f"Option<{kind}>"
        attributes = f'    #[serde(default, skip_serializing_if = "{empty}")]\n'
    return f"{comment(field.doc, '    ')}{attributes}    pub {name}: {kind},\n"


def comment(text: str, indent: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), 90)
    return "".join(f"{indent}/// {line}\n" for line in lines)


def write_type(kind) -> str:
    match kind:
        case Plain(name):
            return PLAIN[name]
        case Ref(name):
            return name
        case List(item):
            return f"Vec<{write_type(item)}>"
        case Map(item):
            return f"BTreeMap<String, {write_type(item)}>"
        case Nullable(item):
            return f"Option<{write_type(item)}>"
