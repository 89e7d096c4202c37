"""Which types of protobuf messages are known here: the library's own, and those of the operator's descriptor sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

# Those that others import come before them.
OF_THE_LIBRARY = (
    any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, timestamp_pb2,
    type_pb2, wrappers_pb2, api_pb2,
)  # fmt: skip
LIBRARY_FILES = {module.DESCRIPTOR.name for module in OF_THE_LIBRARY}


@dataclass(frozen=True, slots=True)
class Known:
    """The types, and what is wrong with the files that were to bring some."""

    pool: DescriptorPool
    problems: Sequence[str]


def known() -> Known:
    """What the settings name, read once. A file that is no good is left out and told of."""
    return _read(tuple(map(str, getattr(settings, "TASKSTORE_DESCRIPTORS", ()))))


def message_type(name: str) -> type[Message] | None:
    """The class of the messages with this full name; None when the type is not known."""
    try:
        kind: type[Message] = GetMessageClass(known().pool.FindMessageTypeByName(name))
    except KeyError:
        return None
    return kind


@cache
def _read(paths: tuple[str, ...]) -> Known:
    # Not the library's default pool: there a type of the operator's could clash with one of the server's.
    pool = DescriptorPool()
    for module in OF_THE_LIBRARY:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return Known(pool, [problem for path in paths for problem in _problems(pool, path)])


def _problems(pool: DescriptorPool, path: str) -> Iterator[str]:
    """Add the types of the file to the pool, and say what keeps them out."""
    try:
        for file in _files(path):
            # The same file is in many sets, in some with its comments.
            file.ClearField("source_code_info")
            pool.AddSerializedFile(file.SerializeToString())
    except OSError as error:
        yield f"{path} can't be read: {error.strerror}"
    except DecodeError:
        yield f"{path} is not a descriptor set"
    except TypeError as error:  # What a pool says of a file that does not fit to the others.
        yield f"{path} conflicts with the other types: {error}"


def _files(path: str) -> list[descriptor_pb2.FileDescriptorProto]:
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes()).file
    if not files:
        raise DecodeError
    return [file for file in files if file.name not in LIBRARY_FILES]
