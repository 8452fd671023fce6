"""What pip's settings say reaches uv, by the environment, and nothing is written down."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "uv_settings.py"
spec = importlib.util.spec_from_file_location("uv_settings", SCRIPT)
assert spec is not None and spec.loader is not None
uv_settings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(uv_settings)


def settings(listing: str, **environment: str) -> dict[str, str]:
    return uv_settings.uv_settings(uv_settings.pip_settings(listing), environment)


def test_indexes_certificates_and_time_limits_are_carried_over(tmp_path: Path) -> None:
    found = settings(
        f"""\
global.cert='/certs.pem'
global.default-timeout='180'
global.extra-index-url='https://b.test/simple file://{tmp_path}'
global.find-links='{tmp_path}\\n{tmp_path}/gone'
global.index-url='https://a.test/simple'
global.trusted-host='a.test'
"""
    )
    assert found == {
        "UV_DEFAULT_INDEX": "https://a.test/simple",
        "UV_INDEX": f"https://b.test/simple file://{tmp_path}",
        "UV_FIND_LINKS": str(tmp_path),
        "UV_INSECURE_HOST": "a.test",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/certs.pem",
    }


def test_the_environment_counts_more_than_the_files_and_uvs_own_settings_most() -> None:
    listing = """\
:env:.index-url='https://env.test/simple'
global.index-url='https://file.test/simple'
"""
    assert settings(listing)["UV_DEFAULT_INDEX"] == "https://env.test/simple"
    assert "UV_DEFAULT_INDEX" not in settings(listing, UV_DEFAULT_INDEX="https://own.test/simple")


def test_a_machine_without_settings_needs_none() -> None:
    assert settings("") == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_the_script_asks_pip_itself() -> None:
    environment = {
        **os.environ,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "https://a.test/x y",
    }
    environment.pop("UV_DEFAULT_INDEX", None)
    told = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    shown = subprocess.run(
        ["bash", "-c", f"{told}\nprintf %s \"$UV_DEFAULT_INDEX\""],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert shown.startswith("https://a.test/x")
