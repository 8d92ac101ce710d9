"""Parts of requests to `/v2`."""

from collections.abc import Mapping

from tests.support import pictures

INFER = "/v2/models/apples/infer"
LENGTH = "Inference-Header-Content-Length"
PNG = pictures.png()
ROW = [0.25] * 128

Json = Mapping[str, object]


def descriptors(data: object, n: int = 2, **changes: object) -> Json:
    return {"name": "descriptors", "shape": [n, 128], "datatype": "FP32", "data": data, **changes}
