"""Where the clouds' credentials are, and whom they name: the environment and the files that
Amazon's and Google's own tools read. Nobody is asked; fetching them is `aws.py`'s and
`google_credentials.py`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """What requests are signed with."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires: float | None = None


def aws_region(environ: Mapping[str, str]) -> str | None:
    """The region that the environment or the profile names."""
    named = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return named or aws_profile(environ).get("region")


def aws_source(environ: Mapping[str, str]) -> str | None:
    """Where credentials can be had, as far as can be told without asking anybody."""
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return "environment"
    if environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environ.get("AWS_ROLE_ARN"):
        return "web identity"
    profile = aws_profile(environ)
    if profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"):
        return "profile"
    if profile.get("credential_process"):
        return "process"
    if environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or environ.get(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    ):
        return "container"
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    if environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _is_ec2():
        return "machine"
    return None


def _is_ec2() -> bool:
    try:
        return Path("/sys/class/dmi/id/sys_vendor").read_text().strip() == "Amazon EC2"
    except OSError:
        return False


def aws_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of the chosen profile, from both files."""
    name = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(environ.get("HOME") or "/") / ".aws"
    files = (
        (Path(environ.get("AWS_CONFIG_FILE") or home / "config"), f"profile {name}"),
        (Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), name),
    )
    found: dict[str, str] = {}
    for file, section in files:
        if not file.is_file():
            continue
        import configparser  # only those who have such a file wait for it

        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue
        for each in (section, name):
            if parser.has_section(each):
                found |= dict(parser.items(each))
                break
    return found


def google_file(environ: Mapping[str, str]) -> Path | None:
    """The file that holds credentials, if there is one."""
    if named := environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return Path(named)
    folder = environ.get("CLOUDSDK_CONFIG")
    home = environ.get("HOME")
    base = Path(folder) if folder else Path(home) / ".config/gcloud" if home else None
    found = None if base is None else base / "application_default_credentials.json"
    return found if found is not None and found.is_file() else None


def google_source(environ: Mapping[str, str]) -> str | None:
    """Where credentials can be had, as far as can be told without asking anybody."""
    if google_file(environ) is not None:
        return "file"
    if environ.get("GCE_METADATA_HOST") or _is_google():
        return "machine"
    return None


def _is_google() -> bool:
    try:
        return Path("/sys/class/dmi/id/product_name").read_text().startswith("Google")
    except OSError:
        return False


def google_project(environ: Mapping[str, str]) -> str | None:
    """The project to bill: the environment's, or the service account's own."""
    if named := environ.get("GOOGLE_CLOUD_PROJECT"):
        return named
    file = google_file(environ)
    try:
        found: Any = None if file is None else json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    held = cast("dict[str, Any]", found)
    named = held.get("project_id") or held.get("quota_project_id")
    return str(named) if named else None
