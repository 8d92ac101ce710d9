"""Descriptors out of `.npy` files and bare floats, from friends and from strangers."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import DescriptorError, LeafcodeError
from service.errors import MalformedBodyError, OversizedBodyError
from service.formats.npy import parse_npy, parse_raw

SOUND = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 128), }"


def npy(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def forged(header: str, data: bytes = bytes(512), version: int = 1) -> bytes:
    """A file whose header says what we like."""
    text = header.encode("latin-1")
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_floats_of_every_width_and_order_are_read(dtype: str, order: str, n: int) -> None:
    values = np.random.default_rng(n).normal(size=(n, 128)).astype(dtype)
    stored = np.asfortranarray(values) if order == "F" else values
    parsed = parse_npy(npy(stored), 7)
    np.testing.assert_array_equal(parsed, values.astype(np.float32))
    assert parsed.dtype == np.float32
    assert parsed.flags.c_contiguous
    assert parsed.flags.aligned


def test_a_header_of_version_2_or_of_odd_length_is_read() -> None:
    values = np.random.default_rng(0).random((1, 128)).astype(np.float32)
    for body in (
        forged(SOUND + "\n", values.tobytes(), version=2),
        forged(SOUND + "   \n", values.tobytes()),
    ):
        parsed = parse_npy(body, 1)
        assert parsed.flags.aligned
        np.testing.assert_array_equal(parsed, values)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((1, 128), np.int32),
        np.zeros((1, 128), np.complex64),
        np.zeros((1, 128), np.longdouble),
        np.zeros((1, 128), bool),
        np.zeros((1, 128), "U1"),
        np.zeros((1, 128), "f4,f4"),
        np.zeros((1, 128), "M8[s]"),
        np.zeros((1, 127), np.float32),
        np.zeros((128, 1), np.float32),
        np.zeros(128, np.float32),
        np.zeros((1, 1, 128), np.float32),
        np.zeros((), np.float32),
    ],
)
def test_arrays_of_another_type_or_shape_are_refused(
    array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]",
) -> None:
    with pytest.raises(DescriptorError, match="expected"):
        parse_npy(npy(array), 10)


class Trap:
    """Unpickled, it would end the test run."""

    def __reduce__(self) -> tuple[object, ...]:
        return (exit, (3,))


def test_objects_are_refused_and_never_unpickled() -> None:
    trap = np.empty((1, 128), object)
    trap[0, 0] = Trap()
    with pytest.raises(DescriptorError, match="has the type object"):
        parse_npy(npy(trap), 10)


@pytest.mark.parametrize("rows", ["2", "0", "True + 1", "-1"])
def test_a_shape_that_contradicts_the_bytes_is_refused(rows: str) -> None:
    with pytest.raises((MalformedBodyError, DescriptorError)):
        parse_npy(forged(SOUND.replace("1, 128", f"{rows}, 128")), 10)


@pytest.mark.parametrize("rows", [11, 2**31, 2**63, 2**64, 10**200])
def test_more_rows_than_allowed_are_refused_before_anything_is_built(rows: int) -> None:
    with pytest.raises(OversizedBodyError):
        parse_npy(forged(SOUND.replace("1, 128", f"{rows}, 128")), 10)


@pytest.mark.parametrize("cut", [1, 500, 512, 600, 639])
def test_a_truncated_file_is_refused(cut: int) -> None:
    with pytest.raises(MalformedBodyError):
        parse_npy(npy(np.zeros((1, 128), np.float32))[:-cut], 10)


def test_bytes_behind_the_array_are_refused() -> None:
    with pytest.raises(MalformedBodyError, match="516 bytes behind its header, expected 512"):
        parse_npy(npy(np.zeros((1, 128), np.float32)) + bytes(4), 10)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "(" * 900,
        "-" * 900 + "1",
        "[" * 90 + "]" * 90,
        "{'descr': '<f4'}",
        "__import__('os')",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 128L), }",
        "'''",
        "\x00",
        "\\\n",
        " {",
        "9" * 900,
        SOUND + " " * 1000,
        SOUND.replace("'<f4'", "7"),
        SOUND.replace("'<f4'", "'<f4,'"),
        SOUND.replace("'<f4'", "[('a',)]"),
        SOUND.replace("'<f4'", "('<f4', (2, -1))"),
        SOUND.replace("'<f4'", "[('a', '<f4'), ('a', '<f4')]"),
        SOUND.replace("'descr'", "[]"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_hostile_header_is_refused_with_a_sentence(header: str, version: int) -> None:
    with pytest.raises(LeafcodeError) as caught:
        parse_npy(forged(header, version=version), 10)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("body", [b"", b"\x93NUMPY", b"PK\x03\x04" * 99, forged(SOUND, version=3)])
def test_other_files_and_other_versions_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match=r"\.npy"):
        parse_npy(body, 10)


FRAGMENTS = st.sampled_from(
    [
        "{", "}", "(", ")", "[", "]", "'descr'", "'fortran_order'", "'shape'", ":", ",", "'<f4'",
        "'|O'", "'>f8'", "True", "False", "128", "1", "-1", "1e999", "1L", "None", "b''", "'", '"',
        "\n", "\\", " ", "{'descr': '<f4', 'fortran_order': False, 'shape': (", "[('a', '<f4')]",
    ]
)  # fmt: skip


@given(
    header=st.lists(FRAGMENTS | st.text(max_size=5), max_size=40).map("".join),
    data=st.binary(max_size=64) | st.just(bytes(512)),
    version=st.sampled_from([1, 2, 3]),
)
def test_any_header_is_read_or_refused(header: str, data: bytes, version: int) -> None:
    body = forged(header.encode("utf-8", "replace").decode("latin-1"), data, version)
    try:
        parsed = parse_npy(body, 3)
    except LeafcodeError:
        return
    assert parsed.shape[1:] == (128,)


@given(rows=st.integers(-(2**70), 2**70), width=st.just(128) | st.integers(-(2**70), 2**70))
def test_any_declared_shape_is_refused_without_building_it(rows: int, width: int) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width})}}"
    with pytest.raises(LeafcodeError):
        parse_npy(forged(header, b"x"), 20_000)


def test_a_float64_beyond_float32_becomes_infinite_for_the_engine_to_refuse() -> None:
    assert np.isinf(parse_npy(npy(np.full((1, 128), 1e300)), 1)).all()


@given(values=st.binary(max_size=2_000))
def test_bare_floats_are_read_by_their_length(values: bytes) -> None:
    if len(values) % 512:
        with pytest.raises(DescriptorError, match="expected a multiple of 512"):
            parse_raw(values, 3)
    else:
        parsed = parse_raw(values, 3)
        assert parsed.shape == (len(values) // 512, 128)
        assert parsed.astype("<f4").tobytes() == values


def test_more_bare_floats_than_allowed_are_refused() -> None:
    with pytest.raises(OversizedBodyError, match="4 descriptors, expected at most 3"):
        parse_raw(bytes(4 * 512), 3)
