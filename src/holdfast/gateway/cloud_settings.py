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
    if found := profile_source(aws_profile(environ)):
        return found
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


def profile_source(profile: Mapping[str, str]) -> str | None:
    """How this profile gets its credentials, if it says so."""
    if profile.get("role_arn") and (
        profile.get("source_profile") or profile.get("credential_source")
    ):
        return "role"
    if profile.get("sso_account_id") or profile.get("sso_role_name"):
        return "single sign-on"
    if profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"):
        return "profile"
    return "process" if profile.get("credential_process") else None


def aws_home(environ: Mapping[str, str]) -> Path:
    """The folder of Amazon's own tools."""
    return Path(environ.get("HOME") or "/") / ".aws"


def aws_profile(environ: Mapping[str, str], name: str | None = None) -> dict[str, str]:
    """The settings of a profile, the chosen one unless named, from both files.

    Those of the single sign-on session that it refers to are among them."""
    chosen = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    name, home = name or chosen, aws_home(environ)
    config = Path(environ.get("AWS_CONFIG_FILE") or home / "config")
    kept = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    found = _section(config, f"profile {name}", name) | _section(kept, name)
    if session := found.get("sso_session"):
        found |= _section(config, f"sso-session {session}")
    return found


def _section(file: Path, *names: str) -> dict[str, str]:
    """The first of these sections that the file has; a file that can't be read has none."""
    if not file.is_file():
        return {}
    import configparser  # only those who have such a file wait for it

    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError):
        return {}
    for name in names:
        if parser.has_section(name):
            return dict(parser.items(name))
    return {}


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
