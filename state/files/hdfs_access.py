"""How the WebHDFS client identifies itself: with a delegation token, or with the name of the user only; and which certificates it trusts.

[hdfs] in the configuration --environment variables, also of child processes--> HdfsAccess --> sessions of HdfsFileStore

A token is a secret: it is read from a file or a variable, is on no command line, and is neither logged nor in an error.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import NamedTuple

from ...processors import user_name
from ..errors import FileStoreRefuses, FileStoreUnreachable
from .hdfs_variables import CA, REFUSAL, TOKEN, TOKEN_FILE
from .webhdfs_session import WebHdfsSession

_USER_VARIABLES = ("HADOOP_USER_NAME", "SPARK_USER")
"""The variables with the user of a cluster without security: as for Hadoop, and the driver's user in Spark's executors."""
_IN_A_URL = re.compile(r"(delegation=)[^&\s'\")]+")


class HdfsAccess(NamedTuple):
    """The identity of a client, and the certificates that it trusts.

    Args:
        token: a delegation token in the form of WebHDFS (`urlString`); empty for a cluster without security.
        ca: the path of trusted certificates; empty for the usual ones.
    """

    token: str
    ca: str

    @staticmethod
    def current() -> HdfsAccess:
        """Return the access that the environment names now: a file with a token may have been renewed.

        Raises:
            FileStoreUnreachable: that file cannot be read, or is empty.
        """
        path = os.environ.get(TOKEN_FILE, "")
        return HdfsAccess(_token_in(path) if path else os.environ.get(TOKEN, ""), os.environ.get(CA, ""))

    def session(self, limit_s: float) -> WebHdfsSession:
        """Return a session whose requests have this identity, and a time limit."""
        session = WebHdfsSession(limit_s)
        if self.token:
            _hide_tokens_in_logs()
            session.params = {"delegation": self.token}
        else:
            names = (os.environ.get(variable) for variable in _USER_VARIABLES)
            session.params = {"user.name": next(filter(None, names), None) or user_name()}
        return session


def expect_configured() -> None:
    """Raise FileStoreRefuses if the configuration lacks a value for HDFS. Without it, requests would have another identity."""
    if refusal := os.environ.get(REFUSAL):
        raise FileStoreRefuses(
            f"{refusal} Nothing was read from HDFS or written to it. Set it in every process with this configuration."
        )


def without_tokens(text: str) -> str:
    """Return a text without the tokens in its URLs."""
    return _IN_A_URL.sub(r"\1…", text)


def _token_in(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileStoreUnreachable(
            f"The file with the token for HDFS, {path}, cannot be read: {type(error).__name__}. Nothing was read from HDFS or written to it. "
            "Write the token there, as WebHDFS returns it (urlString), readable for this user."
        ) from error
    if not token:
        raise FileStoreUnreachable(
            f"The file with the token for HDFS, {path}, is empty. Nothing was read from HDFS or written to it. Write the token there, as WebHDFS "
            "returns it (urlString)."
        )
    return token


class _WithoutTokens(logging.Filter):
    """Hides the tokens in the URLs of log lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message."""
        record.msg, record.args = without_tokens(record.getMessage()), ()
        return True


_FILTER = _WithoutTokens()


def _hide_tokens_in_logs() -> None:
    # The HTTP library logs the URL of each request for --log-level debug.
    logging.getLogger("urllib3.connectionpool").addFilter(_FILTER)
