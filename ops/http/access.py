"""Access rules of the servers of Penstock: free access from this machine, and a token or a proxy for other machines.

token    from a file or an environment variable, never from the command line, which other users can read
roles    with the token of viewers, visitors only read; with the other one they may do everything
proxy    its headers name the user and the groups; they count only with the shared secret
neither  only names of this machine: another name may be a DNS rebinding attack on a browser of this machine
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...processors import PenstockError, counted
from ...state import split_address
from .listening import is_loopback
from .visitors import LOCAL_VISITOR, Role, TrustedProxy, Visitor, is_equal

MIN_SECRET_LENGTH = 16
"""The shortest token or secret, in characters. It alone protects the data from the network."""
_GENERATE = 'python -c "import secrets; print(secrets.token_urlsafe())"'


class AccessRefused(PenstockError):
    """Other machines could use a server without a token, or guess a secret: set a longer one."""


@dataclass(frozen=True)
class ProtectedServer:
    """The server that access rules protect, for messages.

    Args:
        name: its name.
        content: what it shows.
        command: the command that starts it.
        variable: the environment variable with its token.
    """

    name: str
    content: str
    command: str
    variable: str


@dataclass(frozen=True)
class Token:
    """A token, and the role of its visitors.

    Args:
        text: the token.
        role: the role.
    """

    text: str = field(repr=False)
    role: Role

    @property
    def visitor(self) -> Visitor:
        """A visitor with the token."""
        return Visitor(f"{self.role.value} with the token", self.role)


@dataclass(frozen=True)
class Access:
    """The access rules of a server.

    Args:
        server: the server.
        token: the token of operators, or of all clients; None without one.
        viewer_token: the token of viewers; None without one.
        proxy: the proxy that authenticates users; None without one.
    """

    server: ProtectedServer
    token: str | None = field(default=None, repr=False)
    viewer_token: str | None = field(default=None, repr=False)
    proxy: TrustedProxy | None = None

    def for_host(self, host: str) -> Access:
        """Return these rules for a server at an address.

        Raises:
            AccessRefused: other machines can reach the address, and there is neither a token nor a proxy.
        """
        if self.is_open and not is_loopback(host):
            raise AccessRefused(
                f"Other machines may reach {host}, and the {self.server.name} shows {self.server.content}. Nothing was started. Write a token to a "
                f"file (`{_GENERATE} > token`) and pass --token-file token, or set it in the environment variable {self.server.variable}; or omit "
                "--host and connect through `ssh -L`."
            )
        return self

    @property
    def is_open(self) -> bool:
        """Whether all clients on this machine have access."""
        return self.token is None and self.viewer_token is None and self.proxy is None

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens, the one of operators first."""
        if self.token is not None:
            yield Token(self.token, Role.OPERATOR)
        if self.viewer_token is not None:
            yield Token(self.viewer_token, Role.VIEWER)

    def token_like(self, text: str | None) -> Token | None:
        """Return the token that equals a text; None without one."""
        return next((token for token in self.tokens() if text is not None and is_equal(text, token.text)), None)

    def visitor(self, host: str, authorization: str) -> Visitor | None:
        """Return the client that sent a request; None without access.

        Args:
            host: the header `Host`.
            authorization: the header `Authorization`, with a token as `Bearer TOKEN`; empty without one.
        """
        if self.is_open:
            address = split_address(f"//{host}")
            return LOCAL_VISITOR if address is not None and is_loopback(address.hostname or "") else None
        kind, _, text = authorization.partition(" ")
        token = self.token_like(text.strip()) if kind.lower() == "bearer" else None
        return None if token is None else token.visitor

    @property
    def refusal(self) -> tuple[int, str]:
        """The status and the message for programs without access."""
        if self.is_open:
            return 403, f"This {self.server.name} accepts only names of this machine. Use 127.0.0.1 or localhost."
        return 401, f"This {self.server.name} needs its token. Send it in the header `Authorization: Bearer TOKEN`."


def read_secret(file: Path | None, variable: str, name: str = "token") -> str | None:
    """Return a secret; None without one.

    Args:
        file: the file that contains it, in one line; None for the variable.
        variable: the environment variable that contains it. An empty one counts as none.
        name: the secret, for messages.

    Raises:
        AccessRefused: the file cannot be read, or the secret is too short or does not fit into a header.
    """
    place = variable if file is None else str(file)
    try:
        text = os.environ.get(variable, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AccessRefused(
            f"The file {place} with the {name} cannot be read: {error}. Nothing was done. Create it with `{_GENERATE} > {place}`."
        ) from error
    if file is None and not text:
        return None
    secret = text.strip()
    if len(secret) < MIN_SECRET_LENGTH or not secret.isascii() or len(secret.split()) != 1:
        raise AccessRefused(
            f"The {name} in {place} has {counted(len(secret), 'character')}, so it could be guessed, or does not fit into a header. Nothing was done. "
            f"Use at least {MIN_SECRET_LENGTH} ASCII characters without spaces (`{_GENERATE}`)."
        )
    return secret
