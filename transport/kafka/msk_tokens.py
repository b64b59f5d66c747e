"""Tokens of AWS MSK: requests to connect, signed with the credentials of this machine's IAM role or user.

Source: https://github.com/aws/aws-msk-iam-sasl-signer-python
"""

from __future__ import annotations

import os

from ..errors import SettingsRefused

NAME = "aws_msk_iam"
"""The value of `oauth_cb` with which clients use these tokens."""
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


def expect_signer() -> None:
    """Raise SettingsRefused if the package that signs is not installed."""
    try:
        import aws_msk_iam_sasl_signer  # noqa: F401, PLC0415 - only clients of MSK need it
    except ModuleNotFoundError as error:
        raise SettingsRefused(
            f"oauth_cb is \"{NAME}\", which needs the package {error.name}. No request was sent. Install it with `pip install 'penstock-core[msk]'`."
        ) from error


def msk_token(region: str) -> tuple[str, float]:
    """Return a token and when it expires, in seconds since 1970. botocore finds and renews the credentials.

    Args:
        region: the setting `sasl.oauthbearer.config`; empty for the region in the environment.

    Raises:
        ValueError: there is no region.
        Exception: botocore finds no credentials.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - as above

    region = region or next((found for name in _REGION_VARIABLES if (found := os.environ.get(name))), "")
    if not region:
        raise ValueError('no region is named; write `sasl.oauthbearer.config = "eu-west-1"`, or set AWS_REGION')
    token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return str(token), expires_ms / 1000
