"""The state of a training run on disk, so that an interrupted one goes on.

One `.npz` file, replaced by a rename after every finished iteration, without pickles.
It remembers what it belongs to: another data set, other settings or another tree make
it useless, and it is rejected.
"""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.data.files import replacing
from trainer.errors import ConfigError
from trainer.learn.algorithm2 import TrainingState

__all__ = ["Checkpoint", "fingerprint"]


def fingerprint(facts: dict[str, object], *arrays: np.ndarray[Any, Any]) -> str:
    """SHA-256 over settings and tensors that a state depends on."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """A file, and the fingerprint of the run that writes and reads it."""

    path: Path
    run: str

    def save(self, state: TrainingState) -> None:
        """Replace the file by `state`; a reader sees the old one or the new one."""
        arrays: dict[str, Any] = {"dictionary": state.dictionary, "table": state.table}
        if state.group_ids is not None:
            arrays["group_ids"] = state.group_ids
        facts = {
            "run": self.run,
            "iteration": state.iteration,
            "relative_errors": list(state.relative_errors),
            "rng_state": state.rng_state,
        }
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        with replacing(self.path) as file:
            np.savez(file, **arrays)

    def load(self) -> TrainingState | None:
        """The state in the file, or None if there is no file."""
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                facts = json.loads(bytes(arrays["facts"]))
                state = TrainingState(
                    iteration=facts["iteration"],
                    dictionary=arrays["dictionary"],
                    table=arrays["table"],
                    group_ids=arrays.get("group_ids"),
                    relative_errors=tuple(facts["relative_errors"]),
                    rng_state=facts["rng_state"],
                )
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{self.path} is not a checkpoint: {error}") from error
        if facts["run"] != self.run:
            raise ConfigError(
                f"{self.path} belongs to a run with other images or settings, "
                "expected one of the same; remove it to start anew"
            )
        return state
