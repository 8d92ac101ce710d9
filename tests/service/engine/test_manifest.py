"""`manifest.json`: a round trip, and a sentence for everything that can be wrong in it."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import BundleError, Manifest, Probe
from service.engine.manifest import TensorSpec, parse_manifest
from tests.support.samples import CONFIG, LABELS, PROPERTY

MANIFEST = Manifest(
    name="sample",
    version=3,
    created="2026-01-02T03:04:05Z",
    config=CONFIG,
    labels=LABELS,
    probes=(Probe(b"\x00\xffimage", (0.1, -2.5, 1e-9)),),
    provenance={"data": "drawings", "seed": 7, "counts": [1, 2]},
    quality={"mean_class_accuracy": 0.71},
    tensors={"table": TensorSpec("int32", (8, 3))},
    files={"tensors.safetensors": "ab" * 32},
).sealed()

WHERE = "models/sample/3/manifest.json"

Document = dict[str, Any]


def document() -> Document:
    loaded: Document = json.loads(MANIFEST.to_bytes())
    return loaded


def sealed(changed: Document) -> bytes:
    """The bytes of a changed manifest whose digest is true again."""
    body = {name: value for name, value in changed.items() if name != "digest"}
    text = json.dumps(body, sort_keys=True).encode()
    return (
        json.dumps({**body, "digest": hashlib.sha256(text).hexdigest()}, indent=1) + "\n"
    ).encode()


def changed(path: str, value: object) -> bytes:
    """The manifest with the member at a dotted path replaced, and sealed."""
    whole = document()
    *parents, last = path.split(".")
    part: Any = whole
    for name in parents:
        part = part[int(name) if name.isdigit() else name]
    part[int(last) if last.isdigit() else last] = value
    return sealed(whole)


def test_a_manifest_survives_the_round_trip() -> None:
    assert parse_manifest(MANIFEST.to_bytes(), WHERE) == MANIFEST


def test_the_helper_of_these_tests_seals_as_the_engine_does() -> None:
    assert sealed(document()) == MANIFEST.to_bytes()


@PROPERTY
@given(
    st.text(max_size=20),
    st.lists(st.text(max_size=8), min_size=2, max_size=5, unique=True),
    st.lists(st.floats(allow_nan=False), max_size=4),
    st.binary(max_size=40),
)
def test_any_names_scores_and_probe_bytes_survive_the_round_trip(
    name: str, labels: list[str], scores: list[float], image: bytes
) -> None:
    probes = (Probe(image, tuple(scores)),)
    manifest = replace(MANIFEST, name=name, labels=tuple(labels), probes=probes).sealed()
    assert parse_manifest(manifest.to_bytes(), WHERE) == manifest


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"version": 4},
        {"created": ""},
        {"config": replace(CONFIG, max_side=65)},
        {"labels": LABELS[::-1]},
        {"probes": ()},
        {"provenance": {}},
        {"quality": {}},
        {"tensors": {}},
        {"files": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_digest_covers_every_other_member(change: dict[str, Any]) -> None:
    assert replace(MANIFEST, **change).sealed().digest != MANIFEST.digest


def test_sealing_twice_changes_nothing() -> None:
    assert MANIFEST.sealed() == MANIFEST


SIZE = len(MANIFEST.to_bytes())


def flipped(data: bytes, place: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[place] ^= 1 << bit
    return bytes(damaged)


@pytest.mark.parametrize("bit", [0, 5, 7])
@pytest.mark.parametrize("place", [0, 1, *range(7, SIZE - 1, SIZE // 40), SIZE - 2, SIZE - 1])
def test_a_flipped_bit_is_refused(place: int, bit: int) -> None:
    with pytest.raises(BundleError, match=r"manifest\.json: "):
        parse_manifest(flipped(MANIFEST.to_bytes(), place, bit), WHERE)


@PROPERTY
@given(st.integers(0, SIZE - 1), st.integers(0, 255))
def test_any_changed_byte_is_refused(place: int, value: int) -> None:
    damaged = bytearray(MANIFEST.to_bytes())
    damaged[place] = value if value != damaged[place] else value ^ 1
    with pytest.raises(BundleError, match=r"manifest\.json: "):
        parse_manifest(bytes(damaged), WHERE)


@pytest.mark.parametrize("length", [0, 1, 10, SIZE // 2, SIZE - 2, SIZE - 1])
def test_a_truncated_manifest_is_refused(length: int) -> None:
    with pytest.raises(BundleError, match=r"manifest\.json: "):
        parse_manifest(MANIFEST.to_bytes()[:length], WHERE)


@pytest.mark.parametrize("extra", [b"\n", b" ", b"{}", b"\0"])
def test_bytes_behind_the_manifest_are_refused(extra: bytes) -> None:
    with pytest.raises(BundleError, match=r"not match its own digest|not valid JSON"):
        parse_manifest(MANIFEST.to_bytes() + extra, WHERE)


def test_the_same_content_in_other_bytes_is_refused() -> None:
    with pytest.raises(BundleError, match="expected the bytes that the trainer wrote"):
        parse_manifest(json.dumps(document()).encode(), WHERE)


def test_a_member_that_no_manifest_has_is_refused() -> None:
    with pytest.raises(BundleError, match="unknown members code"):
        parse_manifest(sealed({**document(), "code": "import os"}), WHERE)


def test_a_bundle_from_before_a_setting_existed_is_still_read() -> None:
    older = document()
    assert isinstance(older["config"], dict)
    del older["config"]["views"][0]["hash"]
    del older["config"]["known_threshold"]
    config = parse_manifest(sealed(older), WHERE).config
    assert config.view.hash == "tree"
    assert config.known_threshold is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"\x80\x04\x95pickle", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a": ' * 100_000, "not valid JSON"),
        (b'{"version": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[]", "found list, expected a JSON object"),
        (b"null", "found NoneType, expected a JSON object"),
        (b"{}", "member 'format_version' is nothing, expected int"),
    ],
    ids=["empty", "no text", "pickle", "deep list", "deep object", "huge", "list", "null", "none"],
)
def test_what_is_no_manifest_at_all_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BundleError, match=f"^{WHERE}: {message}"):
        parse_manifest(data, WHERE)


@pytest.mark.parametrize("member", [name for name in document() if name != "digest"])
def test_a_missing_member_is_named(member: str) -> None:
    whole = document()
    del whole[member]
    with pytest.raises(BundleError, match=f"member '{member}' is nothing, expected "):
        parse_manifest(sealed(whole), WHERE)


@pytest.mark.parametrize("member", list(document()))
@pytest.mark.parametrize(("value", "found"), [(None, "NoneType"), (True, "bool"), (1.5, "float")])
def test_a_member_of_the_wrong_type_is_named(member: str, value: object, found: str) -> None:
    data = json.dumps({**document(), member: value}).encode()
    with pytest.raises(BundleError, match=f"member '{member}' is {found}, expected "):
        parse_manifest(data, WHERE)


@pytest.mark.parametrize("version", [0, 3, -1])
def test_another_format_version_is_refused(version: int) -> None:
    with pytest.raises(BundleError, match=f"format_version is {version}, expected 2$"):
        parse_manifest(changed("format_version", version), WHERE)


def test_an_older_format_version_is_refused_with_what_to_do() -> None:
    message = "format_version is 1, expected 2; older bundles are not read any more, train it again"
    with pytest.raises(BundleError, match=f"{message}$"):
        parse_manifest(changed("format_version", 1), WHERE)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("config.views.0.depth", 0, "config: depth is 0, expected a whole number from 1 to 24"),
        ("config.views.0.depth", "3", "config: depth is '3'"),
        (
            "config.blocks.0.nonzeros",
            13,
            "config: nonzeros is 13, expected a whole number from 1 to 12",
        ),
        ("config.blocks.0.sign_rule", "both", "config: sign_rule is 'both'"),
        ("config.blocks.0.sign_rule", ["raw"], "config: sign_rule is"),
        ("config.blocks.0.pyramid", [4, 3], "config: pyramid level 3 does not divide"),
        ("config.blocks.0.pyramid", 4, "config: pyramid is 4, expected a list"),
        ("config.blocks.0.pyramid", "421", "config: pyramid is '421', expected a list"),
        ("config.blocks.0.pyramid", ["4"], "config: pyramid level is '4'"),
        ("config.probability_scale", "1", "config: "),
        ("config.probability_scale", float("nan"), "config: probability_scale is nan"),
        ("config.unknown", 1, "config: .*unknown"),
        ("config.views.0.unknown", 1, "config: .*unknown"),
        ("config.blocks.0.unknown", 1, "config: .*unknown"),
        ("config.blocks.0.kind", "atoms", "config: kind is 'atoms', expected one of codes, "),
        ("config.blocks.0.weight", -1, "config: weight is -1, expected a positive number"),
        ("config.blocks.0.view", 1, "config: view is 1, expected a whole number from 0 to 0"),
        ("config.views", 7, "config: views is 7, expected a list of objects"),
        ("config.blocks", [7], r"config: blocks is \[7\], expected a list of objects"),
        ("labels", ["ant"], "labels must be at least two different strings"),
        ("labels", ["ant", "ant"], "labels must be at least two different strings"),
        ("labels", ["ant", 7], "labels must be at least two different strings"),
        ("labels", [], "labels must be at least two different strings"),
        ("probes.0", "image", "member 'probe' is str, expected dict"),
        ("probes.0.image", "no base64!", "probe: "),
        ("probes.0.image", 3, "member 'image' is int, expected str"),
        ("probes.0.scores", "1", "member 'scores' is str, expected list"),
        ("probes.0.scores", ["x"], "probe: "),
        ("probes.0.scores", [None], "probe: "),
        ("probes.0.scores", [10**400], "probe: "),
        ("tensors.table", [8, 3], "member 'tensor' is list, expected dict"),
        ("tensors.table.shape", [8, -3], r"tensor shape is \[8, -3\], expected whole numbers"),
        ("tensors.table.shape", ["8"], r"tensor shape is \['8'\], expected whole numbers"),
        ("tensors.table.dtype", 32, "member 'dtype' is int, expected str"),
        ("files.model", "abc", "member 'files.model' is str, expected dict"),
        ("files.model", {"sha256": 5}, "member 'sha256' is int, expected str"),
    ],
)
def test_a_value_that_cannot_be_is_named_even_under_a_true_digest(
    path: str, value: object, message: str
) -> None:
    with pytest.raises(BundleError, match=f"^{WHERE}: {message}"):
        parse_manifest(changed(path, value), WHERE)


def test_a_missing_pyramid_is_named() -> None:
    whole = document()
    del whole["config"]["blocks"][0]["pyramid"]
    with pytest.raises(BundleError, match="config: pyramid is None, expected a list"):
        parse_manifest(sealed(whole), WHERE)


Edit = Callable[[Document], object]


@pytest.mark.parametrize(
    "edit",
    [
        lambda whole: whole.update(digest="0" * 64),
        lambda whole: whole.update(digest=""),
        lambda whole: whole.update(name="another"),
        lambda whole: whole["labels"].reverse(),
        lambda whole: whole["quality"].update(mean_class_accuracy=0.99),
    ],
    ids=["other digest", "no digest", "name", "labels", "quality"],
)
def test_an_edited_manifest_is_refused(edit: Edit) -> None:
    whole = document()
    edit(whole)
    data = (json.dumps(whole, indent=1) + "\n").encode()
    with pytest.raises(BundleError, match="does not match its own digest"):
        parse_manifest(data, WHERE)


def test_a_tensor_spec_reads_like_a_type() -> None:
    assert str(TensorSpec("float32", (8, 3))) == "float32 [8, 3]"
