"""The manifests by Kubernetes's own schemas, and as far as they speak of each other."""

import json
from typing import Any

import jsonschema_rs
import pytest
import yaml

from service.settings import Settings
from tests.docker import kubernetes_schemas
from tests.support.processes import ROOT

FOLDER = ROOT / "docker" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name != "kustomization.yaml"
}
# Of the Prometheus operator: a kind that Kubernetes itself does not know.
CUSTOM = "servicemonitor"
LABELS = {"app.kubernetes.io/name": "leafcode"}
POD: dict[str, Any] = MANIFESTS["deployment"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubernetes_schemas.FILE.read_text())
    return found


def validate(manifest: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Raises `ValueError` if Kubernetes would not take a manifest, unknown fields included."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    words = [manifest["kind"].lower(), group.partition(".")[0], version]
    kind = schemas["kinds"]["-".join(word for word in words if word)]
    jsonschema_rs.validator_for({**kind, "$defs": schemas["$defs"]}).validate(manifest)


@pytest.mark.parametrize("name", [name for name in MANIFESTS if name != CUSTOM])
def test_kubernetes_takes(name: str, schemas: dict[str, Any]) -> None:
    validate(MANIFESTS[name], schemas)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("deployment", "replica", 2),
        ("deployment", "template", {"spec": {"container": []}}),
        ("service", "ports", [{"name": "http"}]),
        ("autoscaler", "maxReplicas", "ten"),
        ("networkpolicy", "ingress", [{"ports": [{"ports": 8000}]}]),
        ("disruptionbudget", "maxUnavailables", 1),
    ],
)
def test_a_mistake_would_be_found(
    name: str, field: str, value: object, schemas: dict[str, Any]
) -> None:
    manifest = MANIFESTS[name]
    with pytest.raises(jsonschema_rs.ValidationError):
        validate({**manifest, "spec": {**manifest["spec"], field: value}}, schemas)


def test_every_manifest_is_applied() -> None:
    assert sorted(KUSTOMIZATION["resources"]) == [f"{name}.yaml" for name in sorted(MANIFESTS)]
    assert [image["name"] for image in KUSTOMIZATION["images"]] == [CONTAINER["image"]]
    assert MANIFESTS["namespace"]["metadata"]["name"] == KUSTOMIZATION["namespace"]


def test_everything_finds_the_pods() -> None:
    assert POD["metadata"]["labels"] == LABELS
    assert MANIFESTS["deployment"]["spec"]["selector"]["matchLabels"] == LABELS
    assert MANIFESTS["service"]["spec"]["selector"] == LABELS
    assert MANIFESTS["disruptionbudget"]["spec"]["selector"]["matchLabels"] == LABELS
    assert MANIFESTS["networkpolicy"]["spec"]["podSelector"]["matchLabels"] == LABELS
    for spread in POD["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == LABELS
    target = MANIFESTS["autoscaler"]["spec"]["scaleTargetRef"]
    deployment = MANIFESTS["deployment"]
    assert target == {
        "apiVersion": deployment["apiVersion"],
        "kind": deployment["kind"],
        "name": deployment["metadata"]["name"],
    }


def test_the_monitor_finds_the_service_and_its_port() -> None:
    monitor, service = MANIFESTS[CUSTOM], MANIFESTS["service"]
    assert (monitor["apiVersion"], monitor["kind"]) == (
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
    )
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {
        "port": service["spec"]["ports"][0]["name"],
        "path": "/metrics",
        "interval": "15s",
    }
    # The operator makes the service's name the job's, for which the alerts ask.
    assert service["metadata"]["name"] == "leafcode"


def test_every_port_is_the_containers() -> None:
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": Settings().port}]
    assert MANIFESTS["service"]["spec"]["ports"][0]["targetPort"] == "http"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == "http"


def test_a_pod_may_do_nothing_that_it_need_not() -> None:
    assert POD["spec"]["securityContext"]["runAsNonRoot"] is True
    assert POD["spec"]["automountServiceAccountToken"] is False
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_volumes_are_mounted_where_they_are_needed_and_models_only_read() -> None:
    claims = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    mounts = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    assert set(claims) == set(mounts) == {"models", "tmp"}
    claim = claims["models"]["persistentVolumeClaim"]
    assert claim["claimName"] == MANIFESTS["models"]["metadata"]["name"]
    assert mounts["models"]["readOnly"] is True


def test_a_pod_has_time_to_drain() -> None:
    waits = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    grace = POD["spec"]["terminationGracePeriodSeconds"]
    assert grace > waits + Settings().shutdown_seconds


def test_variables_are_settings_and_those_of_compose() -> None:
    variables = {item["name"]: item["value"] for item in CONTAINER["env"]}
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    assert variables == compose["services"]["leafcode"]["environment"]
