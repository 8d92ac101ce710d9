"""`predict --cluster`: the same table by real workers of Dask, one of which dies at work."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.engine import Engine
from tests.support import clusters, opened_files, pictures
from tests.support.processes import until
from trainer.cli import main


def test_a_worker_that_dies_costs_nothing_but_time(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, photos, out = models / "tiny" / "1", tmp_path / "photos", tmp_path / "labels.parquet"
    photos.mkdir()
    names = [*(f"{number:02d}.png" for number in range(20)), opened_files.STUCK]
    for seed, name in enumerate(names):
        (photos / name).write_bytes(pictures.png(pictures.noise(seed=seed)))
    command = ["predict", str(bundle), str(photos), "--out", str(out), "--cluster"]
    with clusters.cluster(tmp_path, 0) as running, ThreadPoolExecutor(1) as thread:
        with monkeypatch.context() as patch:
            for name, value in opened_files.environment(tmp_path / "hook").items():
                patch.setenv(name, value)
            running.start_worker()
        done = thread.submit(main, [*command, running.address])
        until(lambda: done.done() or (out / "part-000000.parquet").exists())
        assert not done.done()  # the last image never ends there
        running.start_worker()
        running.kill_worker(0)
        assert done.result() == 0
    table = pq.read_table(out).to_pydict()
    engine = Engine.load(bundle)
    best = [engine.classify((photos / name).read_bytes())[0] for name in names]
    assert table["path"] == names
    assert table["label"] == [each.label for each in best]
    assert table["probability"] == [each.probability for each in best]


def test_processes_of_this_machine_and_a_cluster_exclude_each_other(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", str(models / "tiny" / "1"), str(tmp_path), "--out", str(tmp_path / "out")]
    assert main([*command, "--cluster", "local", "--processes", "2"]) == 2
    assert "error: --processes is for this machine" in capsys.readouterr().err
