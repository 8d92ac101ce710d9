"""Whatever bytes come, a reader returns a sound value or raises its own kind of error."""

import json
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.seeds import npy_file
from tests.hostile.strategies import inference_documents, with_another_value, with_damage
from tests.hostile.targets import (
    TARGETS,
    read_bundle_files,
    read_image,
    read_inference,
    read_npy,
    sound_files,
)
from tests.support.samples import IMAGES

# How many examples is for the profile to say: some in `make test`, many in `make hostile`.
readers = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def safetensors_header() -> tuple[object, bytes]:
    """The header of a sound file as JSON, and what follows it."""
    tensors = sound_files()[2]
    (length,) = struct.unpack("<Q", tensors[:8])
    return json.loads(tensors[8 : 8 + length]), tensors[8 + length :]


@pytest.mark.parametrize("name", TARGETS)
@readers
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_rejected(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", IMAGES)
@readers
@given(data=st.data())
def test_a_damaged_image_is_read_or_rejected(name: str, data: st.DataObject) -> None:
    read_image(data.draw(with_damage(IMAGES[name])))


@readers
@given(damaged=with_damage(npy_file()))
def test_a_damaged_array_is_read_or_rejected(damaged: bytes) -> None:
    read_npy(damaged)


@readers
@given(document=inference_documents, tail=st.binary(max_size=20))
def test_an_inference_request_is_read_or_rejected(document: object, tail: bytes) -> None:
    header = json.dumps(document).encode()
    read_inference(len(header).to_bytes(2, "little") + header + tail)


@readers
@given(choice=st.sampled_from(b"\0\1\2\3"), data=st.data())
def test_a_damaged_bundle_is_read_or_rejected(choice: int, data: st.DataObject) -> None:
    _, manifest, tensors = sound_files()
    file = manifest if choice & 1 else tensors
    read_bundle_files(bytes([choice]) + data.draw(with_damage(file)))


@readers
@given(data=st.data())
def test_a_forged_manifest_is_read_or_rejected(data: st.DataObject) -> None:
    whole = json.loads(sound_files()[1])
    read_bundle_files(b"\3" + data.draw(with_another_value(whole)))


@readers
@given(data=st.data())
def test_a_forged_header_of_tensors_is_read_or_rejected(data: st.DataObject) -> None:
    header, rest = safetensors_header()
    text = data.draw(with_another_value(header))
    read_bundle_files(b"\2" + struct.pack("<Q", len(text)) + text + rest)
