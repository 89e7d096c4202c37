"""docs/grpc-messages.md: the calls and messages of masstasker.proto, with its comments."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

from taskstore import masstasker

from .tables import MADE, sentence, table

DEFINITION = Path(masstasker.__file__).with_name("masstasker.proto")
WELL_KNOWN = Path(grpc_tools.__file__).with_name("_proto")
BEGINS = """\
What travels over [gRPC](grpc.md), from [masstasker.proto](../taskstore/masstasker/masstasker.proto): from it, or by the
reflection of a server, clients in any language are made. What a message does not carry is empty or 0.
"""
# The places of things in a definition, which its comments are kept by: the numbers of descriptor.proto's fields.
MESSAGE, SERVICE, PART = 4, 6, 2

Comments = dict[tuple[int, ...], str]


def grpc_page() -> str:
    definition = parsed()
    comments = {tuple(each.path): each.leading_comments for each in definition.source_code_info.location}
    [service] = definition.service
    calls = [
        call_section(call, comments.get((SERVICE, 0, PART, place), "")) for place, call in enumerate(service.method)
    ]
    messages = [message_section(place, each, comments) for place, each in enumerate(definition.message_type)]
    head = [f"# The calls of {definition.package}.{service.name}", "", MADE, BEGINS]
    return "\n".join([*head, "## Calls", "", *calls, "## Messages", "", *messages])


def parsed() -> FileDescriptorProto:
    """The definition with its comments, which the generated modules leave out."""
    with tempfile.NamedTemporaryFile() as file:
        paths = [f"--proto_path={DEFINITION.parent}", f"--proto_path={WELL_KNOWN}"]
        outcome = protoc.main(
            ["protoc", *paths, "--include_source_info", f"--descriptor_set_out={file.name}", DEFINITION.name]
        )
        if outcome != 0:
            raise ValueError(f"{DEFINITION} is no definition: protoc said above what is wrong")
        return FileDescriptorSet.FromString(file.read()).file[0]


def call_section(call: MethodDescriptorProto, comment: str) -> str:
    shape = f"Takes {linked(call.input_type)}, answers {linked(call.output_type)}."
    return "\n\n".join([f"### {call.name}", f"{sentence(comment)} {shape}"]) + "\n"


def message_section(place: int, message: DescriptorProto, comments: Comments) -> str:
    said = [comments.get((MESSAGE, place, PART, number), "") for number in range(len(message.field))]
    parts = [f"### {message.name}", sentence(comments.get((MESSAGE, place), "")), one_of(message)]
    parts.append(table("| field | number | is | says |", field_rows(message, said)))
    return "\n\n".join(filter(None, parts)) + "\n"


def one_of(message: DescriptorProto) -> str:
    return "One of its fields, not several." if message.oneof_decl else ""


def field_rows(message: DescriptorProto, said: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    for field, comment in zip(message.field, said, strict=True):
        yield f"`{field.name}`", str(field.number), type_of(field, message), comment


def type_of(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    if maps := [each for each in message.nested_type if field.type_name.endswith(f".{message.name}.{each.name}")]:
        key, value = maps[0].field
        return f"`map<{scalar(key)}, {scalar(value)}>`"
    name = linked(field.type_name) if field.type_name else f"`{scalar(field)}`"
    return f"repeated {name}" if field.label == FieldDescriptorProto.LABEL_REPEATED else name


def scalar(field: FieldDescriptorProto) -> str:
    """As the definition writes it: `uint64`."""
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def linked(type_name: str) -> str:
    """A message of this page, or one of Google's that every language has."""
    name = type_name.rpartition(".")[2]
    return f"`{type_name.strip('.')}`" if ".google." in type_name else f"[{name}](#{name.lower()})"
