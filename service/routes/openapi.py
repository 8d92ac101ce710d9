"""What OpenAPI says beyond the signatures: bodies, binary answers, headers, examples of errors.

The bodies of the two calls have many forms, which FastAPI cannot read off a signature.
What holds for every call, the request id and the shape of errors, is added to the
finished document, so that no route has to repeat it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from service.http.problems import documented, examples_of
from service.routes.schemas import DescriptorsBody, ImageBody, ImagesBody
from service.settings import Settings

__all__ = [
    "CLASSIFY_BODY",
    "CODES_ANSWER",
    "CODES_BODY",
    "EXPLAIN_ANSWER",
    "EXPLAIN_BODY",
    "complete_openapi",
]

Document = dict[str, Any]

_SMALL_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgAQAAAABbAUdZAAAATklEQVR42n3OsRHCMBQE0adrwJTgTqzOcGmUopAC"
    "CEyiT6DYJDcb7OxcK8TtfB/i/RFjildRPE2OpUzGnwAS9kWNrk4VvYk91LVVu7vxA32pE5lUzN/hAAAAAElFTkSu"
    "QmCC"
)
_BINARY: Document = {"type": "string", "format": "binary"}
_IMAGE: Document = {
    "schema": {**_BINARY, "description": "JPEG, PNG, WebP, GIF, BMP or TIFF.", "minLength": 1}
}
_SEVERAL_FILES: Document = {
    "schema": {
        "type": "object",
        "description": "One or more files, under any field name.",
        "properties": {"image": {"type": "array", "items": _BINARY, "minItems": 1}},
        "required": ["image"],
    }
}
_ONE_FILE: Document = {
    "schema": {
        "type": "object",
        "description": "One file, under any field name.",
        "properties": {"image": _BINARY},
        "required": ["image"],
    }
}
_NPY: Document = {
    "schema": {**_BINARY, "description": "`.npy` of (n, 128) float16, float32 or float64."}
}
_NPZ: Document = {
    "schema": {
        **_BINARY,
        "description": "`.npz`: leaf_ids (n,) and atom_ids (n, m) int32, values (n, m) float32, "
        "n_atoms; model_name, model_version, model_digest; for an image grid (rows, cols), "
        "grid_step, grid_origin (left, top), grid_side and image_size (width, height).",
    }
}
_ONE_OR_MORE_IMAGES: Document = {
    "schema": {"oneOf": [ImageBody.model_json_schema(), ImagesBody.model_json_schema()]},
    "examples": {
        "one": {"summary": "One image", "value": {"image": _SMALL_PNG}},
        "several": {"summary": "Several images", "value": {"images": [_SMALL_PNG, _SMALL_PNG]}},
    },
}

CLASSIFY_BODY: Document = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": _IMAGE,
            "image/*": _IMAGE,
            "multipart/form-data": _SEVERAL_FILES,
            "application/json": _ONE_OR_MORE_IMAGES,
        },
    }
}

EXPLAIN_BODY: Document = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": _IMAGE,
            "image/*": _IMAGE,
            "multipart/form-data": _ONE_FILE,
            "application/json": {
                "schema": ImageBody.model_json_schema(),
                "example": {"image": _SMALL_PNG},
            },
        },
    }
}

CODES_BODY: Document = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": DescriptorsBody.model_json_schema(),
                "example": {"descriptors": [[0.0625] * 128]},
            },
            "application/octet-stream": {
                "schema": {**_BINARY, "description": "n x 128 little-endian float32 numbers."}
            },
            "application/x-npy": _NPY,
            "application/npy": _NPY,
            "image/*": _IMAGE,
            "multipart/form-data": _ONE_FILE,
        },
    }
}

_VARY: Document = {
    "Vary": {"description": "The form depends on `Accept`.", "schema": {"type": "string"}}
}

EXPLAIN_ANSWER: Document = {
    "description": "Successful Response",
    "content": {"image/png": {"schema": {**_BINARY, "description": "The image and its map."}}},
    "headers": _VARY,
}

CODES_ANSWER: Document = {
    "description": "Successful Response",
    "content": {
        "application/x-npz": _NPZ,
        "application/npz": _NPZ,
        "application/zip": _NPZ,
    },
    "headers": _VARY,
}

_REQUEST_ID = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$", "example": "order-7.photo-3"}
_REQUEST_ID_PARAMETER = {
    "name": "X-Request-Id",
    "in": "header",
    "description": "Your name for this request in the answer and in the log: up to 64 letters, "
    "digits, dots, dashes and underscores. Any other is replaced.",
    "schema": {"type": "string"},
    "example": "order-7.photo-3",
}
_HEADERS = {
    "RequestId": {
        "description": "Names this request in the log.",
        "required": True,
        "schema": _REQUEST_ID,
    },
    "RetryAfter": {
        "description": "Whole seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 1},
    },
}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_WORTH_ANOTHER_TRY = {"429", "503"}


def complete_openapi(
    app: FastAPI, direct_routers: Iterable[APIRouter], settings: Settings
) -> Document:
    """The document of an application with the limits in force; made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=[*(route for router in direct_routers for route in router.routes), *app.routes],
            tags=app.openapi_tags,
        )
        components = document["components"]
        components.setdefault("headers", {}).update(_HEADERS)
        keys_asked = settings.api_keys is not None or settings.api_keys_file is not None
        if keys_asked:
            components["securitySchemes"] = _KEYS
        for path, operation in _operations(document):
            _add_rejections(operation)
            if keys_asked and path not in settings.listed("open_paths"):
                operation["security"] = [{name: []} for name in _KEYS]
                operation["responses"].update(_as_text(documented(401)))
            _complete(operation)
        _state_limits(document["paths"], settings)
        app.openapi_schema = document
    return app.openapi_schema


def _operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            yield path, operation


def _add_rejections(operation: Document) -> None:
    """What happens before a route runs, to any request."""
    slow = (408,) if "requestBody" in operation else ()
    operation["responses"].update(_as_text(documented(*slow, 422, 431)))


def _as_text(responses: dict[int | str, Document]) -> Document:
    """Statuses as JSON has them."""
    return {str(status): response for status, response in responses.items()}


def _complete(operation: Document) -> None:
    operation.setdefault("parameters", []).append(_REQUEST_ID_PARAMETER)
    for status, response in operation["responses"].items():
        headers = response.setdefault("headers", {})
        headers["X-Request-Id"] = {"$ref": "#/components/headers/RequestId"}
        if status in _WORTH_ANOTHER_TRY:
            headers["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}
        problem = response.get("content", {}).get("application/problem+json")
        if problem is not None:
            problem["examples"] = examples_of(int(status))


def _state_limits(paths: Document, settings: Settings) -> None:
    images = paths["/v1/classify"]["post"]["requestBody"]["content"]
    form, several = images["multipart/form-data"], images["application/json"]["schema"]["oneOf"][1]
    form["schema"]["properties"]["image"]["maxItems"] = settings.max_images
    several["properties"]["images"]["maxItems"] = settings.max_images
    codes = paths["/v1/codes"]["post"]["requestBody"]["content"]["application/json"]
    codes["schema"]["properties"]["descriptors"]["maxItems"] = settings.max_descriptors
