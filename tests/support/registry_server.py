"""A schema registry over HTTP: the requests that Confluent's clients send, with passwords, TLS and compatibility checks.

It returns the text of a Protobuf schema by default, and its descriptor for `format=serialized`, as Confluent's registry does.
"""

from __future__ import annotations

import http.server
import json
import ssl
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import NAMESPACE_OID, uuid5

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from support.secured_kafka import certificate

USER = "ann"
PASSWORD = "secret-of-the-tests"  # noqa: S105 - of a temporary registry
NOT_FOUND = (404, {"error_code": 40401, "message": "Not found"})
PROMOTIONS = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")}


@dataclass(frozen=True)
class Stored:
    """A schema: its language, its canonical text, and its references."""

    kind: str
    canonical: str
    references: str

    @property
    def guid(self) -> str:
        """A GUID that follows from the content."""
        return str(uuid5(NAMESPACE_OID, f"{self.kind}{self.canonical}{self.references}"))

    def content(self, text_format: str | None) -> dict[str, Any]:
        """Return the fields of an answer."""
        is_text = self.kind == "PROTOBUF" and text_format != "serialized"
        text = "// the text of a Protobuf schema, which a client must not parse" if is_text else self.canonical
        found = {"schema": text, "guid": self.guid, "references": json.loads(self.references)}
        return found if self.kind == "AVRO" else {**found, "schemaType": self.kind}


@dataclass
class RegistryServer:
    """A running registry.

    Args:
        url: its address.
        authority: the file of the certificate that clients trust; None without TLS.
        requests: the method and path of each request, in order.
        ids: the schemas; the id of a schema is its index plus one.
        subjects: the versions of each subject.
        compatibility: the setting of all subjects.
    """

    url: str = ""
    authority: Path | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    ids: list[Stored] = field(default_factory=list)
    subjects: dict[str, list[Stored]] = field(default_factory=dict)
    compatibility: str = "BACKWARD"

    def answer(  # noqa: PLR0911 - one return per request
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        """Return the status and the content of an answer."""
        text_format = query.get("format", [None])[0]
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["subjects"]:
                return 200, sorted(self.subjects)
            case "GET", ["subjects", subject, "versions"] if subject in self.subjects:
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version, text_format)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, stored(body))
            case "POST", ["subjects", subject] if stored(body) in self.subjects.get(subject, []):
                return 200, self._registered(subject, stored(body), None)
            case "POST", ["compatibility", "subjects", subject, "versions", *_]:
                return 200, {"is_compatible": not self._incompatibilities(subject, stored(body))}
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.ids):
                return 200, self.ids[int(number) - 1].content(text_format)
            case "GET", ["schemas", "guids", guid] if any(one.guid == guid for one in self.ids):
                return 200, next(one for one in self.ids if one.guid == guid).content(text_format)
            case "GET", ["config", *_]:
                return 200, {"compatibilityLevel": self.compatibility}
        return NOT_FOUND

    def _version(self, subject: str, version: str, text_format: str | None) -> tuple[int, Any]:
        versions = self.subjects.get(subject, [])
        number = len(versions) if version in {"latest", "-1"} else int(version)
        if not 0 < number <= len(versions):
            return NOT_FOUND
        return 200, self._registered(subject, versions[number - 1], text_format)

    def _registered(self, subject: str, schema: Stored, text_format: str | None) -> dict[str, Any]:
        version = self.subjects[subject].index(schema) + 1
        return {
            **schema.content(text_format),
            "subject": subject,
            "version": version,
            "id": self.ids.index(schema) + 1,
        }

    def _register(self, subject: str, schema: Stored) -> tuple[int, Any]:
        if schema not in self.subjects.get(subject, []):
            reasons = self._incompatibilities(subject, schema)
            if reasons:
                message = f"Schema being registered is incompatible with an earlier schema: {'; '.join(reasons)}"
                return 409, {"error_code": 409, "message": message}
            self.subjects.setdefault(subject, []).append(schema)
        if schema not in self.ids:
            self.ids.append(schema)
        return 200, self._registered(subject, schema, None)

    def _incompatibilities(self, subject: str, schema: Stored) -> list[str]:
        versions = self.subjects.get(subject, [])
        if not versions or self.compatibility == "NONE":
            return []
        if schema.kind != versions[-1].kind:
            return [f"{schema.kind} after {versions[-1].kind}"]
        old, new = _types(versions[-1]), _types(schema)
        changed = [
            f"{name} is {kind}, not {old[name][0]}"
            for name, (kind, _) in new.items()
            if name in old and kind != old[name][0] and (old[name][0], kind) not in PROMOTIONS
        ]
        return changed + [
            f"{name} is new and has no default" for name, one in new.items() if name not in old and one[1]
        ]


def stored(body: Any) -> Stored:
    """Return the canonical schema of a request."""
    kind, text = body.get("schemaType", "AVRO"), body["schema"]
    references = json.dumps(body.get("references", []))
    if kind == "PROTOBUF":
        file = _file(text)
        file.name = ""
        _clear_json_names(file.message_type)
        return Stored(kind, b64encode(file.SerializeToString(deterministic=True)).decode(), references)
    try:
        schema = json.loads(text)
    except ValueError:
        schema = text
    if kind == "AVRO" and isinstance(schema, dict) and schema.keys() == {"type"}:
        schema = schema["type"]
    return Stored(kind, json.dumps(schema), references)


def _file(text: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except ValueError:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "schema.proto").write_text(text)
            out, included = Path(folder, "out"), files("grpc_tools") / "_proto"
            arguments = ["protoc", f"-I{folder}", f"-I{included}", f"--descriptor_set_out={out}", "schema.proto"]
            assert protoc.main(arguments) == 0
            return FileDescriptorSet.FromString(out.read_bytes()).file[0]


def _clear_json_names(messages: Any) -> None:
    for message in messages:
        for one in message.field:
            one.ClearField("json_name")
        _clear_json_names(message.nested_type)


def _types(schema: Stored) -> dict[str, tuple[str, bool]]:
    """Return the type of each field, and whether older messages without it are unreadable."""
    if schema.kind == "PROTOBUF":
        file = FileDescriptorProto.FromString(b64decode(schema.canonical))
        return dict(_fields(file.message_type))
    content = json.loads(schema.canonical)
    if not isinstance(content, dict):
        return {"": (str(content), True)}
    if schema.kind == "JSON":
        required = content.get("required", [])
        properties = content.get("properties", {"": content})
        return {name: (str(one.get("type")), name in required) for name, one in properties.items()}
    fields = content.get("fields", [])
    return {one["name"]: (json.dumps(one["type"]).strip('"'), "default" not in one) for one in fields}


def _fields(messages: Any) -> Iterator[tuple[str, tuple[str, bool]]]:
    message: DescriptorProto
    for message in messages:
        for one in message.field:
            yield f"{message.name}.{one.number}", (f"{one.type}{one.type_name}", False)


@contextmanager
def registry_server(tls_folder: Path | None = None) -> Iterator[RegistryServer]:
    """Run a registry in the block; with TLS and a self-signed certificate if a folder for the certificate is given."""
    registry = RegistryServer(authority=certificate(tls_folder) if tls_folder else None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    if tls_folder and registry.authority:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(registry.authority, tls_folder / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.url = f"{'https' if tls_folder else 'http'}://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def _handler(registry: RegistryServer) -> type[http.server.BaseHTTPRequestHandler]:
    login = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers one connection."""

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            parts = urlsplit(self.path)
            with lock:
                registry.requests.append((self.command, parts.path))
                if self.headers["Authorization"] == login:
                    request = json.loads(body) if body else None
                    status, content = registry.answer(self.command, parts.path, parse_qs(parts.query), request)
                else:
                    status, content = 401, {"error_code": 401, "message": "Unauthorized"}
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    return Handler
