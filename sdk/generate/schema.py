"""The schemas of the OpenAPI document as plain declarations for every language.

An unsupported schema is an error that names it: nothing is guessed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

# Messages of the WebSocket: the SDKs stream over HTTP, where a dropped connection can be resumed.
OMITTED = {"FromClient", "ToClient"}

PLAIN = {"string": "string", "integer": "int", "number": "float", "boolean": "bool"}


@dataclass(frozen=True)
class Plain:
    """string, int, float, bool, time or any."""

    kind: str


@dataclass(frozen=True)
class Ref:
    name: str


@dataclass(frozen=True)
class List:
    item: Type


@dataclass(frozen=True)
class Map:
    item: Type


@dataclass(frozen=True)
class Nullable:
    item: Type


Type = "Plain | Ref | List | Map | Nullable"


@dataclass(frozen=True)
class Field:
    name: str
    type: Type
    required: bool
    doc: str


@dataclass(frozen=True)
class Struct:
    name: str
    doc: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    name: str
    doc: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Alias:
    name: str
    doc: str
    type: Type


@dataclass(frozen=True)
class Union:
    """One of several objects, distinguished by their fields."""

    name: str
    doc: str
    variants: tuple[Struct, ...]

    def flat(self) -> Struct:
        """All fields of all variants in one object, none of them required."""
        fields: dict[str, Field] = {}
        for field in (field for variant in self.variants for field in variant.fields):
            fields.setdefault(field.name, dataclasses.replace(field, required=False))
        return Struct(self.name, self.doc, tuple(fields.values()))


class Unknown(Exception):
    """A schema that this generator does not support."""


def read(document: dict) -> list:
    """The declarations, in the order of their names."""
    schemas = document["components"]["schemas"]
    names = sorted(name for name in schemas if name not in OMITTED)
    return [declare(name, schemas[name], schemas) for name in names]


def said(document: dict) -> set[str]:
    """Names of response types, and of the types they refer to."""
    found = {"BranchLine", "BuildLine", "ErrorBody", "Instruction"}
    for operation in operations(document):
        found |= refs(operation["responses"])
    return closure(found, document)


def by_tag(document: dict) -> dict[str, set[str]]:
    """Names by the tag of the first operation that needs them; others under `service`."""
    tags: dict[str, set[str]] = {}
    left = set(document["components"]["schemas"]) - OMITTED
    for operation in operations(document):
        own = closure(refs(operation), document) & left
        tags.setdefault(operation["tags"][0], set()).update(own)
        left -= own
    tags.setdefault("service", set()).update(left)
    return {tag: names for tag, names in tags.items() if names}


def operations(document: dict) -> list[dict]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def closure(names: set[str], document: dict) -> set[str]:
    """These and all types they refer to."""
    schemas = document["components"]["schemas"]
    while more := {name for known in names for name in refs(schemas[known])} - names:
        names = names | more
    return names


def refs(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"].rsplit("/", 1)[1]} if "$ref" in node else set()
        return own.union(*(refs(part) for part in node.values()))
    if isinstance(node, list):
        return set().union(*(refs(part) for part in node))
    return set()


def declare(name: str, schema: dict, schemas: dict):
    doc = schema.get("description", "")
    if words := words_of(schema):
        return Choice(name, doc, words)
    if "allOf" in schema:
        return Struct(name, doc, tuple(merged(name, schema["allOf"], schemas)))
    if "oneOf" in schema and not is_nullable(schema):
        variants = tuple(
            Struct(name, "", tuple(merged(name, part.get("allOf", [part]), schemas)))
            for part in schema["oneOf"]
        )
        return Union(name, doc, variants)
    if "properties" in schema:
        return Struct(name, doc, tuple(fields_of(name, schema)))
    return Alias(name, doc, type_of(name, schema))


def words_of(schema: dict) -> tuple[str, ...]:
    if schema.get("type") == "string" and "enum" in schema:
        return tuple(schema["enum"])
    parts = schema.get("oneOf", [])
    if parts and all(part.get("type") == "string" and "enum" in part for part in parts):
        return tuple(word for part in parts for word in part["enum"])
    return ()


def merged(name: str, parts: list, schemas: dict) -> list[Field]:
    return [field for part in parts for field in fields_of(name, resolve(part, schemas))]


def resolve(schema: dict, schemas: dict) -> dict:
    if "$ref" in schema:
        return schemas[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def fields_of(owner: str, schema: dict) -> list[Field]:
    if "properties" not in schema:
        raise Unknown(f"{owner}: an object without properties: {schema}")
    required = schema.get("required", [])
    return [
        Field(name, type_of(f"{owner}.{name}", part), name in required, doc_of(part))
        for name, part in schema["properties"].items()
    ]


def doc_of(part: dict) -> str:
    inner = (sub.get("description", "") for sub in part.get("oneOf", []))
    return part.get("description") or next(filter(None, inner), "")


def is_nullable(schema: dict) -> bool:
    return any(part.get("type") == "null" for part in schema.get("oneOf", []))


def type_of(where: str, schema: dict) -> Type:
    if "$ref" in schema:
        return Ref(schema["$ref"].rsplit("/", 1)[1])
    if "oneOf" in schema:
        parts = [part for part in schema["oneOf"] if part.get("type") != "null"]
        if len(parts) != 1 or not is_nullable(schema):
            raise Unknown(f"{where}: a choice between types: {schema}")
        return Nullable(type_of(where, parts[0]))
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [name for name in kind if name != "null"]
        if len(rest) != 1:
            raise Unknown(f"{where}: several types: {kind}")
        return Nullable(type_of(where, {**schema, "type": rest[0]}))
    return plain_type(where, kind, schema)


def plain_type(where: str, kind: str | None, schema: dict) -> Type:
    if kind is None and not set(schema) - {"description"}:
        return Plain("any")
    if kind == "array":
        return List(type_of(where, schema["items"]))
    if kind == "object":
        return Map(type_of(where, schema.get("additionalProperties") or {}))
    if kind == "string" and schema.get("format") == "date-time":
        return Plain("time")
    if kind in PLAIN:
        return Plain(PLAIN[kind])
    raise Unknown(f"{where}: {schema}")
