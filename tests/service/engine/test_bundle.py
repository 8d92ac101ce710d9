"""Bundles on disk: bit-exact, mapped read-only, refused when wrong, published whole."""

import hashlib
import os
import pickle
import re
import resource
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from service.engine import (
    Bundle,
    BundleError,
    Engine,
    Probe,
    UnreadableBundleError,
    read_bundle,
    write_bundle,
)
from service.engine.bundle import (
    MANIFEST_FILE,
    TENSORS_FILE,
    BundleFiles,
    OpenBundle,
)
from service.engine.manifest import TensorSpec
from service.engine.tensor_names import expected_tensors
from tests.support.bundle_files import is_mapped, reseal, store, store_tensors
from tests.support.samples import LABELS, random_bundle, random_png

Tensor = npt.NDArray[Any]
Tensors = dict[str, Tensor]

BUNDLE = random_bundle()
CONFIG = BUNDLE.manifest.config
TABLE = "block0.table"


def copies() -> Tensors:
    return {name: tensor.copy() for name, tensor in BUNDLE.tensors.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound bundle that a test may damage."""
    target = tmp_path / "sample" / "1"
    write_bundle(BUNDLE, target)
    return target


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def refused(message: str) -> Any:
    return pytest.raises(BundleError, match=message)


# --- sound ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
def test_a_tensor_survives_the_round_trip_bit_for_bit(folder: Path, name: str) -> None:
    found, written = read_bundle(folder).tensors[name], BUNDLE.tensors[name]
    assert (found.dtype, found.shape) == (written.dtype, written.shape)
    assert found.tobytes() == written.tobytes()


def test_the_manifest_that_writing_answers_is_the_one_that_is_read(tmp_path: Path) -> None:
    assert write_bundle(BUNDLE, tmp_path / "1") == read_bundle(tmp_path / "1").manifest


def test_what_the_trainer_says_survives_the_round_trip(folder: Path) -> None:
    found, written = read_bundle(folder).manifest, BUNDLE.manifest
    assert replace(found, tensors={}, files={}, digest="") == written


def test_the_same_bundle_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    write_bundle(BUNDLE, tmp_path / "1")
    write_bundle(BUNDLE, tmp_path / "2")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / version).iterdir()}
        for version in "12"
    )
    assert first == second


def test_a_version_folder_holds_two_files_and_nothing_else(folder: Path) -> None:
    assert names(folder) == {MANIFEST_FILE, TENSORS_FILE}


def test_every_file_has_its_digest_in_the_manifest(folder: Path) -> None:
    digest = hashlib.sha256((folder / TENSORS_FILE).read_bytes()).hexdigest()
    assert read_bundle(folder).manifest.files == {TENSORS_FILE: digest}


@pytest.mark.parametrize("name", ["", MANIFEST_FILE, TENSORS_FILE])
def test_a_published_bundle_can_be_read_by_every_user(folder: Path, name: str) -> None:
    mode = stat.S_IMODE((folder / name).stat().st_mode)
    assert mode == (0o644 if name else 0o755)


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
def test_tensors_are_read_only(folder: Path, name: str) -> None:
    tensor = read_bundle(folder).tensors[name]
    with pytest.raises(ValueError, match="read-only"):
        tensor[...] = 0
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        tensor.flags.writeable = True


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
def test_tensors_are_memory_mapped(folder: Path, name: str) -> None:
    tensor = read_bundle(folder).tensors[name]
    assert is_mapped(tensor)


def test_an_engine_copies_no_tensor(folder: Path) -> None:
    engine = Engine(read_bundle(folder))
    used = {**engine.tensors(), **engine.classifier.tensors()}
    assert set(used) == set(BUNDLE.tensors)
    assert all(map(is_mapped, used.values()))


def test_a_path_may_be_a_string(folder: Path) -> None:
    assert read_bundle(str(folder)).manifest == read_bundle(folder).manifest


def test_a_bundle_stays_usable_after_its_folder_was_renamed(folder: Path) -> None:
    bundle = read_bundle(folder)
    folder.rename(folder.with_name("old"))
    np.testing.assert_array_equal(bundle.tensors[TABLE], BUNDLE.tensors[TABLE])


@pytest.mark.parametrize("order", ["F", "strided"])
def test_a_tensor_that_is_not_contiguous_is_stored_as_it_reads(tmp_path: Path, order: str) -> None:
    tensors = copies()
    weights = tensors["classifier_weights"]
    turned = np.asfortranarray(weights) if order == "F" else np.repeat(weights, 2, axis=0)[::2]
    write_bundle(replace(BUNDLE, tensors={**tensors, "classifier_weights": turned}), tmp_path / "1")
    found = read_bundle(tmp_path / "1").tensors["classifier_weights"]
    np.testing.assert_array_equal(found, weights)


def test_expected_tensors_are_those_of_a_sound_bundle() -> None:
    found = {
        name: TensorSpec(str(tensor.dtype), tensor.shape) for name, tensor in BUNDLE.tensors.items()
    }
    assert found == expected_tensors(CONFIG, len(LABELS))


# --- damaged files -------------------------------------------------------------------


@pytest.mark.parametrize("name", [MANIFEST_FILE, TENSORS_FILE])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with refused(f"{name}: cannot be read.*No such file"):
        read_bundle(folder)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with refused(re.escape(str(tmp_path / "7" / MANIFEST_FILE))):
        read_bundle(tmp_path / "7")


@pytest.mark.parametrize("name", [MANIFEST_FILE, TENSORS_FILE])
def test_a_folder_in_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    with refused(f"{name}: not a file"):
        read_bundle(folder)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_tensors_are_refused(folder: Path, share: float) -> None:
    path = folder / TENSORS_FILE
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with refused(f"{TENSORS_FILE}: (SHA-256 is .*, expected|cannot be mapped)"):
        read_bundle(folder)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_manifest_is_refused(folder: Path, share: float) -> None:
    path = folder / MANIFEST_FILE
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with refused(f"{MANIFEST_FILE}: "):
        read_bundle(folder)


@pytest.mark.parametrize("extra", [b"\0", b"PK\x03\x04"])
def test_bytes_behind_the_tensors_are_refused(folder: Path, extra: bytes) -> None:
    path = folder / TENSORS_FILE
    path.write_bytes(path.read_bytes() + extra)
    with refused("SHA-256 is .*, expected .*damaged"):
        read_bundle(folder)


def flip(path: Path, place: float, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", [MANIFEST_FILE, TENSORS_FILE])
@pytest.mark.parametrize("place", [0, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
def test_one_flipped_bit_is_refused_by_engine_load(folder: Path, name: str, place: float) -> None:
    flip(folder / name, place, 0)
    with refused(f"{name}: "):
        Engine.load(folder)


# Every example damages the same copy and mends it, so that the folder may be shared.
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from([MANIFEST_FILE, TENSORS_FILE]),
    place=st.floats(0, 1),
    bit=st.integers(0, 7),
)
def test_any_flipped_bit_is_refused(folder: Path, name: str, place: float, bit: int) -> None:
    flip(folder / name, place, bit)
    with refused(f"{name}: "):
        read_bundle(folder)
    flip(folder / name, place, bit)
    read_bundle(folder)


def test_tensors_of_another_bundle_are_refused(folder: Path, tmp_path: Path) -> None:
    write_bundle(random_bundle(seed=1), tmp_path / "2")
    (folder / TENSORS_FILE).write_bytes((tmp_path / "2" / TENSORS_FILE).read_bytes())
    with refused("SHA-256 is .*does not belong to this manifest"):
        read_bundle(folder)


def test_a_manifest_without_the_tensors_digest_is_refused(folder: Path) -> None:
    reseal(folder, lambda whole: whole["files"].clear())
    with refused("SHA-256 is .*, expected None"):
        read_bundle(folder)


# --- wrong content under true digests ------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"weights": [1.0]}),
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        b"PK\x03\x04" + bytes(64),
        b"short",
        bytes(64),
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
        (2).to_bytes(8, "little") + b"\xff\xff",
    ],
    ids=["pickle", "hostile pickle", "zip", "short", "zeros", "huge", "list", "entry", "text"],
)
def test_a_file_that_is_no_safetensors_is_refused(folder: Path, data: bytes) -> None:
    store(folder, data)
    with refused(f"{TENSORS_FILE}: not a sound safetensors file"):
        read_bundle(folder)


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
def test_a_missing_tensor_is_refused(folder: Path, name: str) -> None:
    tensors = copies()
    del tensors[name]
    store_tensors(folder, tensors)
    with refused(f"holds the tensors .*expected .*'{name}'"):
        read_bundle(folder)


def test_an_extra_tensor_is_refused(folder: Path) -> None:
    store_tensors(folder, {**copies(), "extra": np.zeros(3, np.float32)})
    with refused("holds the tensors .*'extra'.*expected "):
        read_bundle(folder)


def test_pseudo_inverses_in_place_of_inverse_grams_are_refused(folder: Path) -> None:
    tensors = copies()
    shape = (CONFIG.view.n_leaves, CONFIG.codes.nonzeros, 128)
    tensors["block0.pseudo_inverses"] = np.zeros(shape, np.float32)
    del tensors["block0.inverse_grams"]
    store_tensors(folder, tensors)
    with refused(
        f"{TENSORS_FILE}: holds the tensors .*'block0.pseudo_inverses'.*"
        "expected .*'block0.inverse_grams'"
    ):
        read_bundle(folder)


def test_no_tensors_at_all_are_refused(folder: Path) -> None:
    store_tensors(folder, {})
    with refused(r"holds the tensors \[\], expected "):
        read_bundle(folder)


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
@pytest.mark.parametrize("change", ["longer", "shorter", "flat", "empty"])
def test_a_tensor_of_the_wrong_shape_is_named(folder: Path, name: str, change: str) -> None:
    tensors = copies()
    tensor = tensors[name]
    tensors[name] = {
        "longer": np.concatenate([tensor, tensor[:1]]),
        "shorter": tensor[:-1].copy(),
        "flat": tensor.reshape(-1, 1),
        "empty": tensor[:0].copy(),
    }[change]
    store_tensors(folder, tensors)
    with refused(rf"tensor {name} is \w+ \[.*\], expected \w+ \[.*\]"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("block0.atoms", "int16"),
        ("block0.atoms", "uint8"),
        ("block0.atoms", "float32"),
        ("block0.atom_scales", "float64"),
        ("view0.tree_vectors", "int16"),
        ("view0.tree_vectors", "float32"),
        ("view0.tree_thresholds", "int32"),
        ("view0.tree_thresholds", "float64"),
        ("classifier_weights", "float32"),
        ("classifier_weights", "float16"),
        ("classifier_weights", "int16"),
        ("classifier_weights", "uint8"),
        ("classifier_scales", "float64"),
        (TABLE, "int64"),
    ],
)
def test_a_tensor_of_a_type_that_no_bundle_has_is_named(
    folder: Path, name: str, dtype: str
) -> None:
    tensor = BUNDLE.tensors[name]
    store_tensors(folder, {**copies(), name: tensor.astype(dtype)})
    with refused(f"tensor {name} is {dtype} .*, expected {tensor.dtype}"):
        read_bundle(folder)


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
def test_a_tensor_of_the_other_type_is_named(folder: Path, name: str) -> None:
    tensor = BUNDLE.tensors[name]
    other = np.float32 if tensor.dtype == np.int32 else np.int32
    store_tensors(folder, {**copies(), name: tensor.astype(other)})
    with refused(f"tensor {name} is {np.dtype(other)} .*, expected {tensor.dtype}"):
        read_bundle(folder)


FLOATS = [name for name, tensor in BUNDLE.tensors.items() if tensor.dtype == np.float32]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused(folder: Path, name: str, value: float) -> None:
    tensors = copies()
    tensors[name].flat[-1] = value
    store_tensors(folder, tensors)
    with refused(f"tensor {name} has values that are not finite"):
        read_bundle(folder)


def test_a_negative_scale_is_refused(folder: Path) -> None:
    tensors = copies()
    tensors["classifier_scales"][0, 1] = -0.25
    store_tensors(folder, tensors)
    with refused("tensor classifier_scales has the value -0.25, expected none below zero"):
        read_bundle(folder)


@pytest.mark.parametrize("atom", [-1, 12, 2**31 - 1, -(2**31)])
def test_an_atom_id_out_of_range_is_refused(folder: Path, atom: int) -> None:
    tensors = copies()
    tensors[TABLE][5, 1] = atom
    store_tensors(folder, tensors)
    with refused(f"{TABLE} names atoms .*{atom}.*, expected 0 to 11"):
        read_bundle(folder)


@pytest.mark.parametrize("labels", [["ant", "bee"], ["ant", "bee", "crab", "dog"]])
def test_labels_that_the_classifier_does_not_have_are_refused(
    folder: Path, labels: list[str]
) -> None:
    reseal(folder, lambda whole: whole.update(labels=labels))
    with refused("tensor classifier_(weights|scales|bias) is .*, expected "):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("views", "depth", 4),
        ("blocks", "n_atoms", 13),
        ("blocks", "nonzeros", 2),
        ("blocks", "pyramid", [2, 1]),
        ("blocks", "sign_rule", "split"),
    ],
)
def test_a_configuration_that_the_tensors_contradict_is_refused(
    folder: Path, part: str, field: str, value: object
) -> None:
    reseal(folder, lambda whole: whole["config"][part][0].update({field: value}))
    with refused("tensor .* is .*, expected "):
        read_bundle(folder)


def test_a_manifest_that_describes_other_tensors_is_refused(folder: Path) -> None:
    reseal(folder, lambda whole: whole["tensors"][TABLE].update(shape=[8, 4]))
    with refused(rf"tensor {TABLE} is int32 \[8, 4\], expected int32 \[8, 3\]"):
        read_bundle(folder)


def test_another_format_version_is_refused(folder: Path) -> None:
    reseal(folder, lambda whole: whole.update(format_version=3))
    with refused("format_version is 3, expected 2$"):
        read_bundle(folder)


def test_a_bundle_of_an_older_format_is_refused_with_what_to_do(folder: Path) -> None:
    reseal(folder, lambda whole: whole.update(format_version=1))
    with refused("format_version is 1, expected 2; .*not read any more, train it again$"):
        read_bundle(folder)


# --- probes --------------------------------------------------------------------------


def written_with_probe(tmp_path: Path, probe: Probe) -> Path:
    manifest = replace(BUNDLE.manifest, probes=(*BUNDLE.manifest.probes, probe))
    write_bundle(replace(BUNDLE, manifest=manifest), tmp_path / "1")
    return tmp_path / "1"


def test_engine_load_replays_the_probes(folder: Path) -> None:
    assert Engine.load(folder).labels == LABELS


def written_with_scores_moved_by(tmp_path: Path, bundle: Bundle, difference: float) -> Path:
    """The bundle with a probe more, one of whose scores is not what the engine gives."""
    scores = Engine(bundle).scores(random_png(5)).astype(float)
    scores[1] += difference
    probe = Probe(random_png(5), tuple(scores))
    manifest = replace(bundle.manifest, probes=(probe,))
    write_bundle(replace(bundle, manifest=manifest), tmp_path / "1")
    return tmp_path / "1"


def scaled(factor: float) -> Bundle:
    """The bundle with scores of another size: at most `factor` for the probe image."""
    factor /= float(np.abs(Engine(BUNDLE).scores(random_png(5))).max())
    names = ("classifier_scales", "classifier_bias")
    changed = {name: (BUNDLE.tensors[name] * factor).astype(np.float32) for name in names}
    return replace(BUNDLE, tensors={**BUNDLE.tensors, **changed})


@pytest.mark.parametrize(("size", "expected"), [(0.3, 0.005), (1, 0.005), (40, 0.2)])
def test_a_probe_with_other_scores_is_refused(tmp_path: Path, size: float, expected: float) -> None:
    where = written_with_scores_moved_by(tmp_path, scaled(size), 2 * expected)
    with refused(
        rf"probe 0 scores differ by {2 * expected:g} from the manifest's, "
        rf"expected at most {expected:g}"
    ):
        Engine.load(where)


@pytest.mark.parametrize(("size", "difference"), [(0.3, 0.004), (40, 0.16)])
def test_a_probe_may_differ_as_rounding_on_another_cpu_makes_it(
    tmp_path: Path, size: float, difference: float
) -> None:
    bundle = scaled(size)
    assert Engine.load(written_with_scores_moved_by(tmp_path, bundle, difference)).labels == LABELS


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_probe_with_a_score_that_is_not_finite_is_refused(tmp_path: Path, score: float) -> None:
    where = written_with_probe(tmp_path, Probe(random_png(5), (score,) * 3))
    with refused(f"probe 1 scores differ by {score}"):
        Engine.load(where)


@pytest.mark.parametrize("n_scores", [0, 1, 2, 4])
def test_a_probe_with_the_wrong_number_of_scores_is_refused(tmp_path: Path, n_scores: int) -> None:
    where = written_with_probe(tmp_path, Probe(random_png(5), (0.0,) * n_scores))
    with refused(f"probe 1 has {n_scores} scores, expected 3"):
        Engine.load(where)


@pytest.mark.parametrize(
    "image",
    [b"", b"not an image", random_png(5)[:200], random_png(5, 8, 8)],
    ids=["empty", "text", "truncated", "too small"],
)
def test_a_probe_that_is_no_image_is_the_bundle_s_error(tmp_path: Path, image: bytes) -> None:
    where = written_with_probe(tmp_path, Probe(image, (0.0,) * 3))
    with refused("probe 1"):
        Engine.load(where)


@pytest.mark.parametrize(
    "name",
    [
        *("block0.atoms", "block0.atom_scales", "block0.inverse_grams"),
        *("classifier_weights", "classifier_scales"),
    ],
)
def test_wrong_weights_under_true_digests_are_found_by_the_probes(folder: Path, name: str) -> None:
    store_tensors(folder, {**copies(), name: np.flip(BUNDLE.tensors[name]).copy()})
    with refused("probe 0 scores differ"):
        Engine.load(folder)


# --- writing -------------------------------------------------------------------------


def test_tensors_that_fill_cache_lines_begin_at_one(folder: Path) -> None:
    tensors = read_bundle(folder).tensors
    whole = [tensor for tensor in tensors.values() if tensor.nbytes % 64 == 0]
    assert len(whole) >= 2
    assert not any(tensor.ctypes.data % 64 for tensor in whole)


def test_the_library_reads_what_was_written(folder: Path) -> None:
    found = load_file(folder / TENSORS_FILE)
    assert set(found) == set(BUNDLE.tensors)
    for name, tensor in BUNDLE.tensors.items():
        np.testing.assert_array_equal(found[name], tensor)


def test_writing_over_a_version_is_refused(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with refused("exists already, expected a new version folder"):
        write_bundle(random_bundle(seed=1), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("kind", ["file", "empty folder"])
def test_writing_over_anything_else_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "1"
    if kind == "file":
        target.touch()
    else:
        target.mkdir()
    with refused("exists already"):
        write_bundle(BUNDLE, target)


def test_writing_makes_the_folders_above(tmp_path: Path) -> None:
    write_bundle(BUNDLE, tmp_path / "models" / "name" / "1")
    assert names(tmp_path / "models" / "name") == {"1"}


class InterruptedTensors(dict[str, Tensor]):
    """Tensors during whose writing the user presses Ctrl-C, after the file is on disk."""

    def items(self) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("tensors", "provenance", "error"),
    [
        ({"objects": np.array([object()])}, {}, Exception),
        ({"text": np.array(["a", "b"])}, {}, Exception),
        (BUNDLE.tensors, {"when": object()}, TypeError),
        (InterruptedTensors(BUNDLE.tensors), {}, KeyboardInterrupt),
    ],
    ids=["objects", "no such type", "no JSON", "interrupted"],
)
def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path,
    tensors: Mapping[str, Tensor],
    provenance: dict[str, object],
    error: type[BaseException],
) -> None:
    manifest = replace(BUNDLE.manifest, provenance=provenance)
    with pytest.raises(error):
        write_bundle(Bundle(manifest, tensors), tmp_path / "1")
    assert not names(tmp_path)


def test_a_write_below_a_file_fails_and_leaves_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("not a folder")
    with pytest.raises(OSError, match="name"):
        write_bundle(BUNDLE, tmp_path / "name" / "1")
    assert (tmp_path / "name").read_text() == "not a folder"


def test_a_target_that_cannot_be_published_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "1").symlink_to(tmp_path / "nowhere")
    with refused("1: cannot be published"):
        write_bundle(BUNDLE, tmp_path / "1")
    assert names(tmp_path) == {"1"}


def test_a_failed_write_leaves_the_older_version_alone(folder: Path) -> None:
    manifest = replace(BUNDLE.manifest, provenance={"when": object()})
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_bundle(replace(BUNDLE, manifest=manifest), folder.with_name("2"))
    assert names(folder.parent) == {"1"}
    read_bundle(folder)


# -- Files that are held open -----------------------------------------------------------------


def replace_files(folder: Path) -> None:
    for name in (MANIFEST_FILE, TENSORS_FILE):
        (folder / f".{name}").write_bytes(b"another file")
        (folder / f".{name}").rename(folder / name)


@pytest.mark.parametrize(
    "change", [shutil.rmtree, replace_files, lambda folder: folder.rename(folder.with_name("2"))]
)
def test_files_that_are_held_open_are_read_again_whatever_becomes_of_their_names(
    folder: Path, change: Callable[[Path], object]
) -> None:
    digest = read_bundle(folder).manifest.digest
    held = OpenBundle(folder)
    try:
        change(folder)
        files = BundleFiles.from_json(held.files.to_json())
        assert Engine.load(files).manifest.digest == digest
    finally:
        held.close()


def test_files_that_are_held_open_and_overwritten_are_refused_by_their_own_names(
    folder: Path,
) -> None:
    held = OpenBundle(folder)
    try:
        with (folder / TENSORS_FILE).open("r+b") as file:
            file.write(b"!")
        with refused(f"{folder / TENSORS_FILE}: SHA-256 is"):
            read_bundle(held.files)
    finally:
        held.close()
        held.close()


@pytest.mark.parametrize("name", [MANIFEST_FILE, TENSORS_FILE])
@pytest.mark.parametrize(
    ("replacement", "sentence"),
    [
        (lambda _: None, "cannot be read (No such file or directory), expected a bundle's"),
        (os.mkfifo, "not a file, expected one of a bundle's version folder"),
        (os.mkdir, "not a file, expected one of a bundle's version folder"),
    ],
    ids=["missing", "pipe", "folder"],
)
def test_what_is_no_file_is_not_held_open_and_keeps_nobody_waiting(
    folder: Path, name: str, replacement: Callable[[Path], None], sentence: str
) -> None:
    (folder / name).unlink()
    replacement(folder / name)
    before = names(Path("/proc/self/fd"))
    with refused(re.escape(f"{folder / name}: {sentence}")):
        OpenBundle(folder)
    assert names(Path("/proc/self/fd")) == before


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [MANIFEST_FILE, TENSORS_FILE])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with refused(f"{name}: not a file"):
        read_bundle(folder)


def test_a_lack_of_open_files_is_not_the_fault_of_the_bundle(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(UnreadableBundleError, match="Too many open files"):
            OpenBundle(folder)
        with pytest.raises(UnreadableBundleError, match="Too many open files"):
            read_bundle(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
