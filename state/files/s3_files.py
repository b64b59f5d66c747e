"""Files in a bucket of S3, or of another store with its protocol, through Arrow.

An object appears whole or not at all, and a list contains it as soon as its upload has returned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from ..addresses import split_address
from ..errors import BadStoreAddress, FileStoreRefuses, FileStoreUnreachable

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

SCHEME = "s3"
VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
)
"""The environment variables with keys and addresses, as of other clients."""
CONNECT_S, REQUEST_S = 5.0, 30.0
"""The time limits of a connection and of a request."""
_REFUSALS = (
    "ACCESS_DENIED",
    "NO_SUCH_BUCKET",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
)
_REASON = re.compile(r"AWS Error (\w+)")


class S3Files:
    """Objects below a location. Any thread may call; each call is durable on return, and can be repeated.

    Args:
        location: s3://bucket/path.

    Raises:
        BadStoreAddress: the location has no bucket or no path.
    """

    def __init__(self, location: str) -> None:
        parts = split_address(location)
        if (
            parts is None
            or parts.scheme != SCHEME
            or not parts.netloc
            or "@" in parts.netloc
            or not parts.path.strip("/")
        ):
            raise BadStoreAddress(
                f"The location of a bucket is incomplete. Nothing was read or written. Use {SCHEME}://bucket/path, and set keys in the variables "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        self._root = f"{parts.netloc}/{parts.path.strip('/')}"

    @cached_property
    def _client(self) -> S3FileSystem:
        from pyarrow import fs  # noqa: PLC0415 - slow to import

        address = os.environ.get("AWS_ENDPOINT_URL")  # Arrow does not read it
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return fs.S3FileSystem(
            endpoint_override=address or None,
            region=region or ("us-east-1" if address else None),
            connect_timeout=CONNECT_S,
            request_timeout=REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),  # the caller repeats requests
        )

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store an object. It replaces one of the same path in one step."""
        with self._translated_errors(path, "written"):
            # An upload that is not completed leaves no object.
            self._upload(path, b"".join(chunks))

    def _upload(self, path: str, content: bytes) -> None:
        with self._client.open_output_stream(f"{self._root}/{path}") as stream:
            stream.write(content)

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the size in bytes of each object in a folder by name, and None for each subfolder. A missing folder is empty."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        with self._translated_errors(folder, "listed"):
            place = f"{self._root}/{folder}".rstrip("/")
            found = self._client.get_file_info(FileSelector(place, allow_not_found=True))
            return {info.base_name: None if info.type is FileType.Directory else info.size for info in found}

    def delete(self, path: str) -> None:
        """Delete an object, if it exists."""
        with self._translated_errors(path, "deleted"):
            try:
                self._client.delete_file(f"{self._root}/{path}")
            except FileNotFoundError:
                return

    @contextmanager
    def _translated_errors(self, path: str, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = " ".join(str(error).split())
            code = _REASON.search(reason)
            kind = FileStoreRefuses if code is not None and code[1] in _REFUSALS else FileStoreUnreachable
            raise kind(f"{SCHEME}://{self._root}/{path} was not {done}: {reason}") from error
