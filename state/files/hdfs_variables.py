"""The environment variables with which processes hand on their access to HDFS. `[hdfs]` in the configuration sets them."""

from __future__ import annotations

TOKEN = "PENSTOCK_HDFS_TOKEN"  # noqa: S105 - the name of a variable
"""The variable with a delegation token."""
TOKEN_FILE = "PENSTOCK_HDFS_TOKEN_FILE"  # noqa: S105 - as above
"""The variable with the path of a file that contains a token."""
CA = "PENSTOCK_HDFS_CA"
"""The variable with the path of trusted certificates (PEM)."""
REFUSAL = "PENSTOCK_HDFS_REFUSAL"
"""The variable with a sentence that says why the configuration cannot open HDFS. Processes without HDFS do not need it."""
