"""Data as the protobuf message that its type names."""

import pytest
from google.protobuf import any_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks_app.console import json_tree, payload
from tasks_app.console.payload import Form

from ..examples import examples

pytestmark = pytest.mark.once

PREFIX = "type.googleapis.com/"
ORDER = PREFIX + "shop.Order"
REMEDY = "Set TASKSTORE_DESCRIPTORS to its descriptors."


def type_of(message):
    return PREFIX + message.DESCRIPTOR.full_name


def decode(data, data_type):
    return payload.decode(data, len(data), data_type)


def texts(decoded):
    return "".join((f"{line.key}: " if line.key else "") + line.text + " " for line in decoded.lines).strip()


def by_name(message):
    decoded = decode(message.SerializeToString(), type_of(message))
    assert decoded.note == ""
    return texts(decoded)


def varint(number):
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def field(number, data):
    """A field of bytes, as the wire has it."""
    return varint(number << 3 | 2) + varint(len(data)) + data


@pytest.fixture
def order_type(settings, tmp_path):
    """The type shop.Order, from a descriptor set that the settings name."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=1)
    order.field.add(name="extra", number=2, type=11, type_name=".google.protobuf.Any", label=1)
    bundled = FileDescriptorProto.FromString(any_pb2.DESCRIPTOR.serialized_pb)
    bundled.source_code_info.location.add(leading_comments="that protoc had of its own")
    (tmp_path / "shop.pb").write_bytes(FileDescriptorSet(file=[bundled, file]).SerializeToString())
    settings.TASKSTORE_DESCRIPTORS = [tmp_path / "shop.pb"]


def test_it_knows_the_types_of_the_library():
    assert by_name(wrappers_pb2.StringValue(value="h\xe9llo")) == '"h\xe9llo"'
    assert by_name(wrappers_pb2.UInt64Value(value=2**64 - 1)) == f'"{2**64 - 1}"'
    assert by_name(timestamp_pb2.Timestamp(seconds=5)) == '"1970-01-01T00:00:05Z"'
    assert by_name(field_mask_pb2.FieldMask(paths=["a.b_c", "d"])) == '"a.bC,d"'
    struct = struct_pb2.Struct()
    struct.update({"a": [1, None]})
    assert by_name(struct) == '{ "a": [ 1.0 null ] }'


def test_it_looks_into_an_any_in_an_any():
    inner, outer = any_pb2.Any(), any_pb2.Any()
    inner.Pack(wrappers_pb2.BoolValue(value=True))
    outer.Pack(inner)
    kinds = [f'"@type": "{PREFIX}google.protobuf.{name}"' for name in ("Any", "BoolValue")]
    assert by_name(outer) == f'{{ {kinds[0]} "value": {{ {kinds[1]} "value": true }} }}'


def test_it_knows_the_types_that_an_operator_names(order_type):
    decoded = decode(b"\x08" + varint(2**63 - 1), ORDER)
    assert texts(decoded) == '{ "order_id": "9223372036854775807" }'
    assert decoded.note == ""


def test_it_says_when_a_message_has_more_than_is_known(order_type):
    decoded = decode(b"\x08\x01\x18\x05", ORDER)
    assert texts(decoded) == '{ "order_id": "1" }'
    assert decoded.note == "The data has fields that the known version of shop.Order lacks. They are not shown."


def test_it_says_when_it_holds_a_type_that_is_not_known(order_type):
    decoded = decode(field(2, field(1, b"x/shop.Money") + field(2, b"\x08\x05")), ORDER)
    assert not decoded.lines
    assert decoded.note == f"The data contains a message of an unknown type. {REMEDY}"


@pytest.mark.parametrize(
    ("data", "data_type", "note"),
    [
        (b"\xff", PREFIX + "google.protobuf.Empty", "The data is not a valid google.protobuf.Empty."),
        (
            field(1, b"\xff"),
            PREFIX + "google.protobuf.StringValue",
            "The data is not a valid google.protobuf.StringValue.",
        ),
        (b"\x08\x01", ORDER, f"The type shop.Order is unknown. {REMEDY}"),
        (b"plain\n", ORDER, ""),
        (b"\0" * 65_537, ORDER, "Data larger than 64 kB is not decoded. Its type is shop.Order."),
        (b"", ORDER, ""),
    ],
)
def test_it_says_why_it_does_not_decode(data, data_type, note):
    decoded = decode(data, data_type)
    assert not decoded.lines
    assert decoded.note == note


def in_any(data):
    return field(1, PREFIX.encode() + b"google.protobuf.Any") + field(2, data)


def in_list(data):
    return field(6, field(1, data))


@pytest.mark.parametrize(
    ("data_type", "wrap"), [(PREFIX + "google.protobuf.Any", in_any), (PREFIX + "google.protobuf.Value", in_list)]
)
@pytest.mark.parametrize("most", [2_000, 60_000])
def test_it_is_not_lost_in_the_deep(data_type, wrap, most):
    data = b""
    while len(data) < most:
        data = wrap(data)
    decoded = decode(data, data_type)
    assert not decoded.lines
    assert decoded.note


KNOWN = [
    PREFIX + f"google.protobuf.{name}"
    for name in ("Any", "Struct", "Value", "ListValue", "Timestamp", "Duration", "FieldMask", "BytesValue", "Type")
]
WIRE = st.recursive(
    st.binary(max_size=30),
    lambda inner: st.lists(st.builds(field, st.integers(1, 20), inner)).map(b"".join),
    max_leaves=10,
)


@settings(max_examples=examples(50))
@given(
    data=WIRE,
    data_type=st.sampled_from(KNOWN) | st.text(min_size=1, max_size=20),
    inner=st.none() | st.sampled_from(KNOWN),
)
def test_it_survives_any_bytes_of_any_type(data, data_type, inner):
    if inner:
        data = field(1, inner.encode()) + field(2, data)
    decoded = decode(data, data_type)
    text = data.decode(errors="replace")
    is_text = "\ufffd" not in text and all(letter.isprintable() or letter in "\t\n\r" for letter in text)
    assert decoded.lines or decoded.note or is_text or not data
    assert {line.kind for line in decoded.lines} <= {"open", "close", "string", "number", "word", "brackets"}


def test_it_is_the_best_form_where_it_can_be_had():
    data_type = PREFIX + "google.protobuf.BoolValue"
    shown = payload.show(b"\x08\x01", data_type=data_type)
    assert (shown.form, shown.kind, shown.forms) == (Form.MESSAGE, "protobuf", [Form.MESSAGE, Form.TEXT, Form.HEX])
    assert payload.show(b"\x08\x01", Form.HEX, data_type=data_type).note == ""
    assert payload.show(b"\xff", data_type=ORDER).note
    assert payload.show(b"", data_type=PREFIX + "google.protobuf.Empty").tree == [
        json_tree.Line(kind="brackets", text="{}")
    ]
    assert payload.show(b"", data_type=ORDER).kind == "empty"
