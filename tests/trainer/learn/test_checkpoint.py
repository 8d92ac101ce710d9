"""A run's state on disk: round trips, and refusals of what does not belong."""

from pathlib import Path

import numpy as np
import pytest

from trainer.errors import ConfigError
from trainer.learn.algorithm2 import TrainingState
from trainer.learn.checkpoint import Checkpoint, fingerprint


def _state(group_ids: list[int] | None = None) -> TrainingState:
    rng = np.random.default_rng(0)
    return TrainingState(
        iteration=3,
        dictionary=rng.normal(size=(6, 4)).astype(np.float32),
        table=np.arange(8, dtype=np.int32).reshape(4, 2) % 6,
        group_ids=None if group_ids is None else np.array(group_ids, np.int32),
        relative_errors=(0.5, 0.25, 0.125),
        rng_state=dict(rng.bit_generator.state),
    )


@pytest.mark.parametrize("group_ids", [None, [0, 1, 1, 3]])
def test_state_comes_back_bit_for_bit(tmp_path: Path, group_ids: list[int] | None) -> None:
    checkpoint = Checkpoint(tmp_path / "state.npz", "run")
    state = _state(group_ids)
    checkpoint.save(state)
    found = checkpoint.load()
    assert found is not None
    assert found.dictionary.tobytes() == state.dictionary.tobytes()
    np.testing.assert_array_equal(found.table, state.table)
    np.testing.assert_array_equal(found.group_ids, state.group_ids)
    assert found.relative_errors == state.relative_errors
    assert found.rng_state == state.rng_state


def test_saving_leaves_one_file(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "state.npz", "run")
    checkpoint.save(_state())
    checkpoint.save(_state())
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]


def test_no_file_is_no_state(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "state.npz", "run").load() is None


def test_state_of_another_run_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "state.npz", "run").save(_state())
    with pytest.raises(ConfigError, match="other images or settings"):
        Checkpoint(tmp_path / "state.npz", "other").load()


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04 broken"], ids=["empty", "text", "zip"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="is not a checkpoint"):
        Checkpoint(path, "run").load()


def test_fingerprint_depends_on_settings_and_arrays() -> None:
    points = np.zeros(4, np.float32)
    prints = {
        fingerprint({"a": 1}, points),
        fingerprint({"a": 1}, points),
        fingerprint({"a": 2}, points),
        fingerprint({"a": 1}, points + 1),
    }
    assert len(prints) == 3
