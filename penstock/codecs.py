"""Codecs of categories: formats of other programs, and your own."""

from .processors.declare.codecs import (
    Codec,
    CodecSpec,
    Decoded,
    HeaderCodec,
    Message,
    Payload,
    SplittingCodec,
    Undecodable,
)
from .transport.codecs.cloudevents import CloudEvents, ContentMode
from .transport.codecs.confluent import ConfluentAvro, ConfluentJson
from .transport.codecs.confluent_protobuf import ConfluentProtobuf
from .transport.codecs.debezium import Debezium, DebeziumKeys
from .transport.codecs.decoded import UndecodableValue, value_of
from .transport.codecs.formats import Bytes, Csv, Json, MessagePack, NoValue, Text
from .transport.codecs.json_array import JsonArray
from .transport.codecs.json_lines import JsonLines
from .transport.codecs.key_objects import ConnectKeys, KeyFields
from .transport.codecs.lines import Lines
from .transport.codecs.protobuf import Protobuf
from .transport.codecs.registry import RegistryUnreachable, SchemaIncompatible, SchemaRegistry, SubjectStrategy
from .transport.codecs.single import FieldsCodec

__all__ = [
    "Bytes",
    "CloudEvents",
    "Codec",
    "CodecSpec",
    "ConfluentAvro",
    "ConfluentJson",
    "ConfluentProtobuf",
    "ConnectKeys",
    "ContentMode",
    "Csv",
    "Debezium",
    "DebeziumKeys",
    "Decoded",
    "FieldsCodec",
    "HeaderCodec",
    "Json",
    "JsonArray",
    "JsonLines",
    "KeyFields",
    "Lines",
    "Message",
    "MessagePack",
    "NoValue",
    "Payload",
    "Protobuf",
    "RegistryUnreachable",
    "SchemaIncompatible",
    "SchemaRegistry",
    "SplittingCodec",
    "SubjectStrategy",
    "Text",
    "Undecodable",
    "UndecodableValue",
    "value_of",
]
