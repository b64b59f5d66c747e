"""`[hdfs]` in the configuration: how commands and workers identify themselves to WebHDFS.

[hdfs]
auth = "token"
token-file = "/run/secrets/hdfs-token"
ca = "/etc/penstock/ca.pem"
"""

from __future__ import annotations

import os
from typing import Literal

from ...state.files.hdfs_variables import CA, TOKEN, TOKEN_FILE
from .errors import ConfigRefused
from .section import Section


class Hdfs(Section, frozen=True):
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

    def set_variables(self) -> None:
        """Set the variables with which this process and its children open HDFS.

        Raises:
            ConfigRefused: there is no token, or there are two, or one without `auth = "token"`.
        """
        if (self.auth == "token") != (bool(self.token) + bool(self.token_file) == 1):
            raise ConfigRefused(
                'In [hdfs], auth = "token" needs either token-file or token = "${VARIABLE}", and other values of auth need neither. Nothing was '
                "done. Correct the file."
            )
        for name, value in ((TOKEN, self.token), (TOKEN_FILE, self.token_file), (CA, self.ca)):
            if value:
                os.environ[name] = value
