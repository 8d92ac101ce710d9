"""What `--cluster` connects to, and what it rejects at once."""

import sys
from pathlib import Path

import pytest

from tests.support import clusters
from trainer.cluster.connection import (
    connected,
    installed_versions,
    require_cluster_extra,
    require_same,
)
from trainer.errors import ClusterError, ConfigError


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "tcp://127.0.0.1"])
def test_an_address_without_a_scheduler_is_named(address: str) -> None:
    with pytest.raises(ClusterError, match=f"{address} cannot be reached"), connected(address, 0.5):
        pass


def test_a_scheduler_without_workers_is_rejected(tmp_path: Path) -> None:
    with (
        clusters.cluster(tmp_path, n_workers=0) as empty,
        pytest.raises(ClusterError, match=r"no worker after 0\.5 s"),
        connected(empty.address, 0.5),
    ):
        pass


def test_workers_of_the_same_code_are_accepted() -> None:
    require_same("tcp://worker", dict(installed_versions()), installed_versions())


@pytest.mark.parametrize("name", ["leafcode", "Python", "numba", "sources of leafcode"])
def test_a_worker_with_another_version_is_named(name: str) -> None:
    other = {**installed_versions(), name: "0.0"}
    with pytest.raises(ClusterError, match=rf"the worker tcp://worker has {name} 0\.0, expected"):
        require_same("tcp://worker", other, installed_versions())


def test_a_worker_that_cannot_import_the_trainer_says_so() -> None:
    error = ModuleNotFoundError("No module named 'trainer'")
    with pytest.raises(ClusterError, match="cannot run this trainer: No module named"):
        require_same("tcp://worker", error, installed_versions())


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'leafcode\[cluster\]'"):
        require_cluster_extra()
