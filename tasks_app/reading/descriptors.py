"""Known types of protobuf messages: the library's own, and those of the operator's descriptor sets."""

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

# Imported modules come before their importers.
OF_THE_LIBRARY = (
    any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, timestamp_pb2,
    type_pb2, wrappers_pb2, api_pb2,
)  # fmt: skip
LIBRARY_FILES = {module.DESCRIPTOR.name for module in OF_THE_LIBRARY}


@dataclass(frozen=True, slots=True)
class Known:
    """The known types, and the problems of the descriptor files."""

    pool: DescriptorPool
    problems: Sequence[str]


def known() -> Known:
    """Return the types of the files in the settings, read once. Broken files are left out and reported."""
    return _read(tuple(map(str, getattr(settings, "TASKSTORE_DESCRIPTORS", ()))))


def message_type(name: str) -> type[Message] | None:
    """Return the class of the messages with this full name; None when the type is unknown."""
    try:
        kind: type[Message] = GetMessageClass(known().pool.FindMessageTypeByName(name))
    except KeyError:
        return None
    return kind


@cache
def _read(paths: tuple[str, ...]) -> Known:
    # Not the library's default pool, where a type of the operator could clash with one of the server.
    pool = DescriptorPool()
    for module in OF_THE_LIBRARY:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return Known(pool, [problem for path in paths for problem in _problems(pool, path)])


def _problems(pool: DescriptorPool, path: str) -> Iterator[str]:
    """Add the types of the file to the pool, and yield the problems that prevent it."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes()).file
        if not files:
            raise DecodeError
        for file in files:
            if file.name not in LIBRARY_FILES:
                # Many sets contain the same file, some with its comments.
                file.ClearField("source_code_info")
                pool.AddSerializedFile(file.SerializeToString())
    except OSError as error:
        yield f"{path} can't be read: {error.strerror}"
    except DecodeError:
        yield f"{path} is not a descriptor set"
    except TypeError as error:  # The pool's error for a file that contradicts the others.
        yield f"{path} conflicts with the other types: {error}"
