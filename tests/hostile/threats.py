"""What the service is threatened by: one member a row of the list that it was built against.

Each is answered for by kinds of hostile inputs (`corpus.py`), or by the tests named below where
the threat is a moment in the life of a process and not something that can be sent or stored.
"""

from enum import StrEnum

__all__ = ["TESTED_ELSEWHERE", "Threat"]


class Threat(StrEnum):
    """One row, with what was measured of libraries in their default settings."""

    MORE_PIXELS_THAN_PILLOW_ALLOWS = "PNG 50 000², JPEG 65 500², GIF 65 535², TIFF 100 000²"
    PIXELS_THAT_PILLOW_WARNS_OF = "PNG 13 000² in 164 KB: 808 MB"
    PIXELS_THAT_PILLOW_ACCEPTS = "PNG 9000² in 236 KB: 620 MB"
    INFLATING_TEXT = "zTXt or iCCP of 200 MB; 100 zTXt of 1 MB"
    MANY_SCANS = "progressive JPEG with 400 scans: 5.4 s of CPU"
    TRUNCATED_IMAGE = "truncated JPEG, JPEG whose header claims 9000²"
    NO_IMAGE = "random bytes, SVG, HEIC, EPS, which starts Ghostscript"
    EMPTY_BODY = "empty body"
    TRAILING_BYTES = "PNG with a ZIP or HTML behind it"
    SIXTEEN_BITS = "16-bit grey PNG: clipped"
    HIDDEN_COLOUR = "RGBA with alpha 0: hidden colour shows"
    UNUSUAL_MODES = "CMYK, palette, LA, 1-bit, EXIF orientation, 1×1"
    LONG_SIDE = "60 000×1"
    ANIMATED = "animated images"
    ERRORS_OF_DECODERS = "OSError, ValueError, SyntaxError, MemoryError while decoding"

    STALLED_CONNECTION = "idle socket, partial headers, stalled body"
    OVERSIZED_BODY = "26 MB chunked with no length; 30 MB file part"
    OVERSIZED_HEADERS = "200 KB of headers, 20 000 headers"
    AMBIGUOUS_FRAMING = "length and chunked together, bare LF, control bytes in a request id"
    MANY_PARTS = "10 000 parts or fields, 1 MB names"
    NUMBERS_NOT_FINITE = "NaN, 1e999 in JSON"
    MANY_NUMBERS = "2 million floats in JSON: the event loop is blocked for 0.26 s"
    DEEP_JSON = "100 000-deep JSON, 5000-digit integer"
    PATHS_IN_NAMES = "..%2f in a model name"
    CLIENT_LEAVES = "client disconnects: the handler runs on"
    SIGTERM_WITH_STALLED_BODY = "SIGTERM with a stalled body: hangs"

    DAMAGED_BUNDLE = "truncation, overlaps, overflow, pickles"
    BITS_AND_WEIGHTS = "bit flips and NaN weights, which safetensors accepts"
    FILE_CUT_UNDER_A_MAPPING = "truncating a file under a live mapping: SIGBUS"
    BAD_NEW_VERSION = "a bad new version"

    DAMAGED_KERNELS = "truncated cache file, corrupt object: aborts the import"
    KERNELS_ON_A_FULL_DISK = "full disk: aborts the import"
    KERNELS_OF_ANOTHER_USER = "pickle that the service's user can write; read-only cache directory"


# Module and test.
TESTED_ELSEWHERE = {
    Threat.SIGTERM_WITH_STALLED_BODY: (
        "tests.hostile.test_corpus",
        "test_a_stop_does_not_wait_for_requests_that_stall",
    ),
    Threat.FILE_CUT_UNDER_A_MAPPING: (
        "tests.service.pool.test_pool_versions",
        "test_a_process_that_is_lost_while_it_proves_a_version_costs_no_worker",
    ),
    Threat.BAD_NEW_VERSION: (
        "tests.service.test_reload",
        "test_a_bad_version_is_refused_and_shown_until_a_good_one_takes_its_place",
    ),
    Threat.KERNELS_ON_A_FULL_DISK: (
        "tests.service.engine.test_compiling",
        "test_a_full_disk_costs_the_cache_but_not_the_start",
    ),
    Threat.KERNELS_OF_ANOTHER_USER: (
        "tests.service.engine.test_compiling",
        "test_kernels_prepared_by_root_are_used_by_another_user_who_cannot_write_them",
    ),
}
