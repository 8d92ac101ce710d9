"""Rows of the table as columns of Arrow; where there is no answer, all but the path is null."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from service.engine import EngineConfig
from service.engine.arrays import Float32Array, Int32Array
from service.engine.encoding import Encoded
from trainer.data.image_files import printable
from trainer.predict.answers import Answer
from trainer.predict.job import Wanted

__all__ = ["table_of"]

Answers = Sequence[Answer | str]
Columns = dict[str, Any]


def table_of(names: Sequence[str], answers: Answers, wanted: Wanted, config: EngineConfig) -> Any:
    """The `pyarrow.Table` of images, in their order."""
    columns = {**_paths(names), **_labels(answers)}
    if wanted.top_k > 1:
        columns |= _ranked_labels(answers)
    if wanted.pooled_vectors:
        columns["pooled_vector"] = _pooled_vectors(answers, config.n_features)
    if wanted.codes:
        columns |= _codes(answers, config.codes.nonzeros)
    problems = [printable(found) if isinstance(found, str) else None for found in answers]
    columns["problem"] = pa.array(problems, pa.string())
    return pa.table(columns)


def _paths(names: Sequence[str]) -> Columns:
    """Text is UTF-8, which names need not be: those that are not have their bytes beside it."""
    is_text = [_is_text(name) for name in names]
    pairs = list(zip(names, is_text, strict=True))
    return {
        "path": pa.array([name if text else printable(name) for name, text in pairs], pa.string()),
        "path_bytes": pa.array(
            [None if text else os.fsencode(name) for name, text in pairs], pa.binary()
        ),
    }


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _labels(answers: Answers) -> Columns:
    return {
        "label": _column(answers, lambda found: found.predictions[0].label, pa.string()),
        "probability": _column(
            answers, lambda found: found.predictions[0].probability, pa.float64()
        ),
        "known": _column(answers, lambda found: found.known, pa.bool_()),
    }


def _ranked_labels(answers: Answers) -> Columns:
    def of_each(name: str) -> Callable[[Answer], object]:
        return lambda found: [getattr(each, name) for each in found.predictions]

    return {
        "labels": _column(answers, of_each("label"), pa.list_(pa.string())),
        "probabilities": _column(answers, of_each("probability"), pa.list_(pa.float64())),
    }


def _column(answers: Answers, value: Callable[[Answer], object], kind: Any) -> Any:
    values = [None if isinstance(found, str) else value(found) for found in answers]
    return pa.array(values, kind)


def _pooled_vectors(answers: Answers, n_features: int) -> Any:
    rows = np.zeros((len(answers), n_features), np.float32)
    for row, found in zip(rows, answers, strict=True):
        if isinstance(found, Answer) and found.pooled is not None:
            row[:] = found.pooled
    are_missing = pa.array([isinstance(found, str) for found in answers])
    return pa.FixedSizeListArray.from_arrays(rows.reshape(-1), n_features, mask=are_missing)


def _codes(answers: Answers, nonzeros: int) -> Columns:
    """The grid of an image, and for each of its descriptors, row by row, leaf, atoms and values."""
    coded = [None if isinstance(found, str) else found.coded for found in answers]
    codes = [each.codes for each in coded if each is not None]
    ids, numbers = pa.list_(pa.int32(), nonzeros), pa.list_(pa.float32(), nonzeros)
    return {
        "grid_rows": pa.array([each and each.grid[0] for each in coded], pa.int32()),
        "grid_cols": pa.array([each and each.grid[1] for each in coded], pa.int32()),
        "leaf_ids": _lists(coded, [each.leaf_ids for each in codes], pa.int32()),
        "atom_ids": _lists(coded, [each.atom_ids for each in codes], ids),
        "values": _lists(coded, [each.values for each in codes], numbers),
    }


def _lists(
    coded: Sequence[Encoded | None], arrays: Sequence[Int32Array | Float32Array], kind: Any
) -> Any:
    """A list for each image, of numbers or of lists of numbers; `arrays` are those of the coded."""
    lengths = [0 if each is None else len(each.codes.leaf_ids) for each in coded]
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    flat = pa.concat_arrays([pa.array([], _number(kind)), *(pa.array(a.ravel()) for a in arrays)])
    items = flat if kind == _number(kind) else pa.FixedSizeListArray.from_arrays(flat, type=kind)
    mask = pa.array([each is None for each in coded])
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def _number(kind: Any) -> Any:
    return kind.value_type if pa.types.is_fixed_size_list(kind) else kind
