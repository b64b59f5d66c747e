"""`[hdfs]` in the configuration: how commands and workers identify themselves to WebHDFS.

[hdfs]
auth = "token"
token-file = "/run/secrets/hdfs-token"
ca = "/etc/penstock/ca.pem"
"""

from __future__ import annotations

import os
from typing import Literal

from ....state.files import CA, REFUSAL, TOKEN, TOKEN_FILE
from .configuration import Configuration
from .errors import ConfigRefused
from .section import Section
from .variables import VariableMissing


class HdfsSection(Section, frozen=True):
    """The access to WebHDFS.

    Args:
        auth: "token" for delegation tokens; "simple" for a cluster without security.
        token: a delegation token, from a variable: "${HDFS_TOKEN}".
        token_file: the file with a delegation token, which is read again when it changes.
        ca: the trusted certificates of https:// addresses (PEM).
    """

    auth: Literal["simple", "token"] = "simple"
    token: str = ""
    token_file: str = ""
    ca: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there is one token for `auth = "token"`, and none otherwise."""
        return (self.auth == "token") == (bool(self.token) + bool(self.token_file) == 1)


def set_variables(configuration: Configuration) -> None:
    """Set the variables with which this process and its children open HDFS. If a value is missing, only the use of HDFS is refused.

    Raises:
        ConfigRefused: the table is invalid as written, for instance without a token.
    """
    written = configuration.section(HdfsSection, with_variables=False)
    if written is None:
        return
    if not written.is_complete:
        raise ConfigRefused(
            'In [hdfs], auth = "token" needs either token-file or token = "${VARIABLE}", and other values of auth need neither. Nothing was '
            "done. Correct the file."
        )
    os.environ.pop(REFUSAL, None)  # of a parent process that lacked the value
    try:
        access = configuration.section(HdfsSection) or written
    except VariableMissing as missing:
        os.environ[REFUSAL] = missing.reason
        return
    if not access.is_complete:  # a variable is set, and empty
        os.environ[REFUSAL] = f"{configuration.file.place(('hdfs',))}: the token in [hdfs] is empty."
    for name, value in ((TOKEN, access.token), (TOKEN_FILE, access.token_file), (CA, access.ca)):
        if value:
            os.environ[name] = value
