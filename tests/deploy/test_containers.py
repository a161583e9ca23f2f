"""Image, compose file and manifests by the tools of those who defined them, and their settings by our own loader."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.debian import DEPLOY, check
from millrace.relayer.rules.policy import Policy, loads
from millrace.runtime.settings import load
from millrace.system.reference import SETTINGS

TOOLS = Path(sys.executable).parent
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
OURS = ("pools", "aggregator", "notifier", "relayer", "console")
OLDEST_KUBERNETES = "1.31"
MANIFESTS = sorted((DEPLOY / "kubernetes").iterdir())
PLACES = {
    "host", "pools_url", "hub_url", "data_dir", "lease_dir", "token_cache", "policy_file", "key_files",
    "trusted_proxies",
}  # fmt: skip
"""Settings that say where something is: containers have it elsewhere."""
VARIABLE = re.compile(r"\$\{(\w+)(?::(?:-([^}]*)|\?[^}]*))?\}")


def objects() -> list[dict[str, Any]]:
    """Everything in the manifests."""
    return [item for path in MANIFESTS for item in yaml.safe_load_all(path.read_text())]


CONFIG: dict[str, str] = next(item for item in objects() if item["kind"] == "ConfigMap")["data"]


def test_the_image_is_linted() -> None:
    """hadolint finds nothing in the Containerfile."""
    check(str(TOOLS / "hadolint"), "Containerfile", folder=DEPLOY)


def test_the_image_runs_as_nobody() -> None:
    """The last stage has a user without a name on the host, a health check, and no compiler."""
    last = (DEPLOY / "Containerfile").read_text().rpartition("\nFROM ")[2]
    assert "USER 10001:10001" in last and "HEALTHCHECK" in last
    assert not re.search(r"gcc|libc6-dev|python3-dev", last)


def test_compose_fits_its_schema() -> None:
    """The compose file is one by the published schema."""
    check(str(TOOLS / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "compose.yml", folder=DEPLOY)


def test_compose_has_the_whole_system() -> None:
    """The services, their servers and what watches them are there; ours can write nothing but their data."""
    services = COMPOSE["services"]
    assert set(services) == {*OURS, "rabbitmq", "redis", "postgres", "prometheus", "grafana"}
    for name in OURS:
        service = services[name]
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "10001:10001"
        assert service["command"] == [name]
    for service in services.values():
        assert service["mem_limit"] and service["logging"]["options"]["max-size"]
        for port in service.get("ports", ()):
            assert port.startswith(("127.0.0.1:", "${NODES_ADDRESS:-127.0.0.1}:")) or port == "37373:37373"
    scrapes = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert {scrape["job_name"] for scrape in scrapes} <= set(services)


@pytest.mark.parametrize("name", OURS)
def test_settings_in_compose_are_known(name: str) -> None:
    """Each variable of a service is a setting of it with a value of its type."""
    given = COMPOSE["services"][name]["environment"]
    env = {
        key: VARIABLE.sub(lambda match: match[2] or "1", value)
        for key, value in given.items()
        if key.startswith("MILLRACE_")
    }
    if "MILLRACE_NOTIFIER__NODE_SECRETS" in env:
        env["MILLRACE_NOTIFIER__NODE_SECRETS"] = json.dumps({"observer-0": "secret"})
    prefix = f"MILLRACE_{name.upper()}__"
    assert all(key.startswith(prefix) for key in env)
    settings: Any = load(name, SETTINGS[name], env=env)
    assert settings.host == "0.0.0.0"


def test_every_variable_of_compose_is_in_the_example() -> None:
    """Whoever copies env.example finds each variable there is to set."""
    named = {match[1] for match in VARIABLE.finditer((DEPLOY / "compose.yml").read_text())}
    example = set(re.findall(r"^#? ?(\w+)=", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert named - {"MILLRACE_IMAGE"} == example


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_their_schemas(path: Path) -> None:
    """Each object is valid, without unknown fields, for the oldest supported Kubernetes and the newest known."""
    for item in yaml.safe_load_all(path.read_text()):
        for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(item, version, strict=True)


def test_pods_are_restricted() -> None:
    """Every container is what the restricted pod standard asks for, and has bounds of memory."""
    found = 0
    for item in objects():
        if item["kind"] not in ("Deployment", "StatefulSet"):
            continue
        pod = item["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            found += 1
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
    assert found == 7  # a container for each service, two more to start the relayer


def test_who_stands_by_is_alive_and_gets_no_clients() -> None:
    """A relayer without a seat answers operators alone: start and life are asked there, readiness where clients are."""
    (relayer,) = (item for item in objects() if item["kind"] == "StatefulSet" and item["metadata"]["name"] == "relayer")
    (container,) = relayer["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["startupProbe"]["httpGet"] == {"path": "/health", "port": ports["operators"]}
    assert container["livenessProbe"] == container["livenessProbe"] | {"tcpSocket": {"port": ports["operators"]}}
    assert container["readinessProbe"] == container["readinessProbe"] | {"tcpSocket": {"port": ports["http"]}}
    health = COMPOSE["services"]["relayer"]["environment"]["HEALTH_URL"]
    assert health == f"http://127.0.0.1:{ports['operators']}/health"


def test_settings_files_are_known(tmp_path: Path) -> None:
    """The sample of settings and that of the manifests load for every service that they name."""
    (tmp_path / "kubernetes.toml").write_text(CONFIG["millrace.toml"])
    for file in (DEPLOY / "millrace.toml", tmp_path / "kubernetes.toml"):
        tables = tomllib.loads(file.read_text())
        assert set(tables) == set(OURS)
        for table in tables:
            load(table, SETTINGS[table], file=file, env={})


def in_compose(name: str) -> Any:
    """The settings of a service of the compose file, where nothing is said that need not be."""
    given = COMPOSE["services"][name]["environment"]
    known = {key: VARIABLE.sub(lambda match: match[2] or "${}", value) for key, value in given.items()}
    env = {key: value for key, value in known.items() if key.startswith("MILLRACE_") and "${}" not in value}
    return load(name, SETTINGS[name], env=env)


@pytest.mark.parametrize("name", OURS)
def test_containers_have_the_settings_of_the_sample(name: str, tmp_path: Path) -> None:
    """Whatever millrace.toml says of a service, but for places, compose file and manifests say too."""
    (tmp_path / "kubernetes.toml").write_text(CONFIG["millrace.toml"])
    others = (in_compose(name), load(name, SETTINGS[name], file=tmp_path / "kubernetes.toml", env={}))
    sample = DEPLOY / "millrace.toml"
    wanted = load(name, SETTINGS[name], file=sample, env={})
    for key in set(tomllib.loads(sample.read_text())[name]) - PLACES:
        for other in others:
            assert getattr(other, key) == getattr(wanted, key), key


def test_containers_have_the_first_policy() -> None:
    """The relayer's policy is a file in a folder that it cannot write: of the host, or of the manifests."""
    path = "/etc/millrace/policy.toml"
    assert in_compose("relayer").policy_file == path
    assert f"{'${POLICY_FOLDER:?set it in .env}'}:/etc/millrace:ro" in COMPOSE["services"]["relayer"]["volumes"]
    assert tomllib.loads(CONFIG["millrace.toml"])["relayer"]["policy_file"] == path
    assert CONFIG["policy.toml"] == (DEPLOY / "policy.toml").read_text()
    pod = next(item for item in objects() if (item["kind"], item["metadata"]["name"]) == ("StatefulSet", "relayer"))
    spec = pod["spec"]["template"]["spec"]
    assert {"name": "settings", "configMap": {"name": "millrace"}} in spec["volumes"]
    mount = {"name": "settings", "mountPath": "/etc/millrace", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]


def test_the_first_policy_is_one() -> None:
    """The sample policy is taken as it is."""
    policy = loads((DEPLOY / "policy.toml").read_text())
    assert policy.budget.per_day < Policy().budget.per_day


def _copied(stage: str) -> set[str]:
    """What a stage of the Containerfile takes from the repository."""
    lines = re.findall(r"^COPY (?!--from)((?:\S+ )+)\S+$", stage, re.MULTILINE)
    return {source for line in lines for source in line.split()}


def test_the_image_has_what_its_build_reads() -> None:
    """What is copied is there and not left out, and it is all that the build of the packages names."""
    root = DEPLOY.parent
    sources = _copied((DEPLOY / "Containerfile").read_text())
    assert all((root / source).exists() for source in sources)
    let_in = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all(any(Path(source).is_relative_to(entry) for entry in let_in) for source in sources)
    assert all((root / entry).exists() for entry in let_in)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = {project["project"]["readme"], *project["project"]["license-files"], "uv.lock", "pyproject.toml"}
    wanted |= set(project["tool"]["uv"]["workspace"]["members"])
    wanted |= set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    wanted |= {Path(key["file"]).parts[0] for key in project["tool"]["uv"]["cache-keys"] if "file" in key}
    missing = {name for name in wanted if not any(Path(name).is_relative_to(source) for source in sources)}
    assert not missing
