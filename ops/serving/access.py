"""Who may query: programs of this machine, or programs with the token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ...processors.errors import PenstockError
from ..listening import is_loopback

MIN_TOKEN_LENGTH = 16
"""The shortest token, in characters."""
_GENERATE = 'python -c "import secrets; print(secrets.token_urlsafe())" > token'


class AccessRefused(PenstockError):
    """Other machines could query without a token, or the token is unusable: pass another token file."""


@dataclass(frozen=True)
class Access:
    """The access rules of a query server.

    Args:
        token: the token of the header `Authorization: Bearer …`; None for a server that only this machine can reach.
    """

    token: str | None = field(default=None, repr=False)

    @staticmethod
    def at(host: str, token_file: Path | None) -> Access:
        """Return the access rules at an address.

        Raises:
            AccessRefused: other machines can reach the address and there is no token, or the token is unusable.
        """
        if token_file is not None:
            return Access(read_token(token_file))
        if not is_loopback(host):
            raise AccessRefused(
                f"Other machines may reach {host}, and the server shows results to everyone without a token. Nothing was started. Write a token "
                f"to a file (`{_GENERATE}`) and pass --token-file token, or omit --host."
            )
        return Access()

    def refusal(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Return why a request is refused; None for a permitted one."""
        if self.token is None:
            host = urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname or ""
            # Another name may be a DNS rebinding attack on a browser of this machine.
            return None if is_loopback(host) else "Without a token, this server accepts only names of this machine."
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode()):
            return None
        return "This server needs its token. Send it in the header `Authorization: Bearer TOKEN`."


def read_token(file: Path) -> str:
    """Return the token in a file.

    Raises:
        AccessRefused: the file is unreadable, or the token is too short.
    """
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AccessRefused(
            f"The token file {file} cannot be read: {error}. Nothing was started. Create it with `{_GENERATE}`."
        ) from error
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or len(token.split()) != 1:
        raise AccessRefused(
            f"The token in {file} has {len(token)} characters. Nothing was started. Write one line with at least {MIN_TOKEN_LENGTH} ASCII "
            f"characters and no spaces (`{_GENERATE}`)."
        )
    return token
