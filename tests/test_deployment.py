"""The files in deploy/: what they start is what there is, and their formats accept them."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate  # pyright: ignore[reportMissingTypeStubs]
import pytest
import yaml

from holdfast.cli.main import build
from holdfast.store.postgres.url import PostgresUrl

DEPLOY = Path(__file__).parent.parent / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
KUBERNETES = "1.31"


def parsed(arguments: list[str]) -> Any:
    """What the command line makes of a container's arguments; raises UsageError."""
    return build({arguments[0]}).parse_args(arguments)


def manifests(file: str = "holdfast.yaml") -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()))


def every_manifest() -> list[dict[str, Any]]:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [each for file in files for each in manifests(file.name)]


def pods() -> list[dict[str, Any]]:
    """What the deployments start."""
    found = [each for each in every_manifest() if each["kind"] == "Deployment"]
    return [each["spec"]["template"]["spec"] for each in found]


def compose(file: str) -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / file).read_text())


def dockerfile() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text()
    return [line for line in text.replace("\\\n", " ").splitlines() if line and line[0] != "#"]


# --- Kubernetes ---


@pytest.mark.parametrize(
    "manifest", every_manifest(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}"
)
def test_manifests_fit_the_published_schemas(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_schemas_notice_what_is_wrong() -> None:
    broken = manifests()[-1]
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


@pytest.mark.parametrize("pod", pods(), ids=["one node", "servers", "workers"])
def test_containers_of_a_pod_start_what_there_is_and_are_probed_where_it_listens(
    pod: dict[str, Any],
) -> None:
    for container in pod["containers"]:
        options = parsed(container["args"])
        [port] = container["ports"]
        listens = (
            options.port or 7420
            if options.noun == "serve"
            else int(options.probes.rpartition(":")[2])
        )
        assert port["containerPort"] == listens
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == port["name"]
            assert container[probe]["httpGet"]["path"] in ("/healthz", "/readyz")
        if options.noun == "worker":
            assert pod["terminationGracePeriodSeconds"] > int(options.grace.rstrip("s"))
    mounted = {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_pods_of_many_nodes_share_a_secret_and_nothing_else() -> None:
    found = {(e["kind"], e["metadata"]["name"]): e for e in manifests("holdfast-postgres.yaml")}
    service = found["Service", "holdfast-server"]["spec"]["selector"]
    budget = found["PodDisruptionBudget", "holdfast-worker"]["spec"]["selector"]["matchLabels"]
    stores: list[dict[str, str]] = []
    for name, selected in (("holdfast-server", service), ("holdfast-worker", budget)):
        deployment = found["Deployment", name]["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        assert deployment["selector"]["matchLabels"] == labels == selected
        assert deployment["replicas"] > 1
        pod = deployment["template"]["spec"]
        assert [volume for volume in pod["volumes"] if "configMap" not in volume] == []
        [container] = pod["containers"]
        variables = {each["name"]: each["valueFrom"] for each in container["env"]}
        stores.append(variables["HOLDFAST_STORE"]["secretKeyRef"])
    assert stores[0] == stores[1]


# --- compose ---


@pytest.mark.parametrize("file", ["compose.yaml", "compose.postgres.yaml", "compose.temporal.yaml"])
def test_services_start_what_there_is_from_files_that_are_there(file: str) -> None:
    found = compose(file)
    theirs = {"database", "temporal", "temporal-ui"}
    ours = {name: each for name, each in found["services"].items() if name not in theirs}
    assert set(ours) == {"server", "worker"}
    for service in ours.values():
        options = parsed(service["command"])
        assert (DEPLOY / options.modules[0]).exists()
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        port = 7420 if options.noun == "serve" else int(options.probes.rpartition(":")[2])
        assert f"127.0.0.1:{port}/" in service["healthcheck"]["test"][-1]
    mounts = (volume for each in found["services"].values() for volume in each.get("volumes", []))
    named = {mount.partition(":")[0] for mount in mounts}
    assert {name for name in named if name[0] != "."} == set(found["volumes"])


def test_workers_are_on_the_temporal_that_is_there_and_nobody_else() -> None:
    services = compose("compose.temporal.yaml")["services"]
    address = urlsplit(services["worker"]["environment"]["HOLDFAST_ENGINE"])
    assert (address.scheme, address.hostname, address.port) == ("temporal", "temporal", 7233)
    assert address.hostname in services and address.hostname in services["worker"]["depends_on"]
    assert "--no-worker" in services["server"]["command"]
    assert "\ntemporalio==" in (DEPLOY / "requirements.lock").read_text(), "the image has it"


@pytest.mark.parametrize("file", ["compose.postgres.yaml", "compose.temporal.yaml"])
def test_the_services_of_many_machines_share_the_database_that_is_there(file: str) -> None:
    found = compose(file)
    database = found["services"]["database"]["environment"]
    assert found["services"]["worker"]["deploy"]["replicas"] == 3
    for name in ("server", "worker"):
        service = found["services"][name]
        address = re.sub(r"\$\{[^}]*\}", "secret", service["environment"]["HOLDFAST_STORE"])
        store = urlsplit(address)
        assert PostgresUrl.parse(address).name == "postgresql://holdfast@database/holdfast"
        assert store.hostname in found["services"] and store.hostname in service["depends_on"]
        assert store.username == database["POSTGRES_USER"]
        assert store.path == f"/{database['POSTGRES_DB']}"
    locked = (DEPLOY / "requirements.lock").read_text()
    assert "\npsycopg-binary==" in locked, "the image has the driver"


# --- the image ---


def test_the_image_copies_what_is_there_and_starts_what_there_is() -> None:
    for line in dockerfile():
        if line.startswith("COPY ") and "--from" not in line:
            *sources, _target = line.split()[1:]
            for source in sources:
                assert (DEPLOY.parent / source).exists(), source
    command = next(line for line in dockerfile() if line.startswith("CMD "))
    parsed(yaml.safe_load(command.removeprefix("CMD ")))
    user = next(line for line in dockerfile() if line.startswith("USER "))
    assert user == "USER holdfast"


def test_the_steps_of_the_image_have_a_valid_shell_syntax() -> None:
    steps = [line.removeprefix("RUN ") for line in dockerfile() if line.startswith("RUN ")]
    assert len(steps) >= 3
    for step in steps:
        subprocess.run(["sh", "-n", "-c", step], check=True)


# --- systemd ---


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_there_is_and_leave_it_time_to_stop(unit: Path) -> None:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(unit)
    service = found["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    options = parsed(arguments)
    assert program.endswith("/holdfast")
    grace = float(re.sub(r"\D", "", options.grace))
    assert float(service["TimeoutStopSec"]) > grace
    assert service["KillSignal"] == "SIGTERM"


def test_the_units_can_have_a_store_in_postgres() -> None:
    text = (DEPLOY / "systemd" / "postgres.conf").read_text()
    environment = dict(
        line.removeprefix("Environment=").split("=", 1)
        for line in text.splitlines()
        if line.startswith("Environment=")
    )
    assert PostgresUrl.parse(environment["HOLDFAST_STORE"]).name == environment["HOLDFAST_STORE"]
    name, source = re.findall(r"^LoadCredential=(\w+):(\S+)$", text, re.MULTILINE)[0]
    assert environment["PGPASSFILE"] == f"%d/{name}" and source in text.partition("[Unit]")[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("drop_in", [None, "postgres.conf"])
def test_systemd_accepts_the_units(unit: Path, drop_in: str | None, tmp_path: Path) -> None:
    text = unit.read_text().replace("/opt/holdfast/bin/holdfast", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(text.replace("User=holdfast\n", "").replace("Group=holdfast\n", ""))
    if drop_in is not None:
        folder = copy.with_name(copy.name + ".d")
        folder.mkdir()
        shutil.copy(unit.with_name(drop_in), folder)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
