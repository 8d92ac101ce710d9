"""Shapes of the Open Inference Protocol, as they appear in OpenAPI."""

from typing import Any, Literal, cast

from pydantic import BaseModel, Field, JsonValue

__all__ = [
    "IndexEntry",
    "InferAnswer",
    "InferBody",
    "Live",
    "ModelConfig",
    "ModelConfigInput",
    "ModelConfigTensor",
    "ModelMetadata",
    "ModelReady",
    "Ready",
    "ServerMetadata",
    "TensorMetadata",
    "inlined",
]

Parameters = dict[str, JsonValue]


class Live(BaseModel):
    """The process answers."""

    live: bool


class Ready(BaseModel):
    """Every worker is ready."""

    ready: bool


class ModelReady(BaseModel):
    """A model is ready."""

    name: str
    version: str
    ready: bool


class ServerMetadata(BaseModel):
    """Who serves, and which extensions of the protocol."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """A tensor that a model reads or answers; -1 is any size."""

    name: str
    datatype: Literal["BOOL", "BYTES", "FP32", "INT32"]
    shape: list[int]


class ModelMetadata(BaseModel):
    """What a model reads and answers.

    A request has one input. `image` is answered with `label`, `label_id`, `probabilities` and
    `known`; `descriptors` with `leaf_id`, `atom_ids` and `values`.
    """

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ModelConfigTensor(BaseModel):
    """A tensor in the words of Triton's model configuration."""

    name: str
    data_type: Literal["TYPE_BOOL", "TYPE_STRING", "TYPE_FP32", "TYPE_INT32"]
    dims: list[int]


class ModelConfigInput(ModelConfigTensor):
    """An input; each is optional, because a request has one of them."""

    optional: bool = True


class ModelConfig(BaseModel):
    """Triton's model configuration; without batching, so that `dims` are whole shapes."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ModelConfigInput]
    output: list[ModelConfigTensor]


class IndexEntry(BaseModel):
    """One version of one model."""

    name: str
    version: str
    state: Literal["READY"]
    reason: str


class InferInput(BaseModel):
    """A tensor to work on."""

    name: Literal["image", "descriptors"]
    shape: list[int] = Field(description="[n] for image, [n, 128] for descriptors.")
    datatype: Literal["BYTES", "FP32"] = Field(description="BYTES of image, FP32 of descriptors.")
    parameters: Parameters | None = Field(
        None, description="`binary_data_size`, if the tensor follows the JSON."
    )
    data: list[JsonValue] | None = Field(
        None,
        description="Encoded images in base64 or as data URIs; numbers, nested or flat, row-major.",
    )


class InferOutput(BaseModel):
    """A tensor to answer."""

    name: str
    parameters: Parameters | None = Field(
        None,
        description="`binary_data`, and for probabilities `classification`: so many labels.",
    )


class InferBody(BaseModel):
    """A request with one input."""

    id: str | None = None
    parameters: Parameters | None = Field(
        None, description="`timeout` in microseconds, `binary_data_output`."
    )
    inputs: list[InferInput] = Field(min_length=1, max_length=1)
    outputs: list[InferOutput] | None = Field(None, description="All of the input's unless given.")


class OutputTensor(BaseModel):
    """An output."""

    name: str
    shape: list[int]
    datatype: Literal["BOOL", "BYTES", "FP32", "INT32"]
    parameters: Parameters | None = Field(
        None, description="`binary_data_size`, if the tensor follows the JSON."
    )
    data: list[JsonValue] | None = Field(None, description="Flat, row-major.")


class InferAnswer(BaseModel):
    """The outputs, in the order asked for."""

    model_name: str
    model_version: str
    id: str | None = Field(None, description="That of the request, if it had one.")
    parameters: Parameters = Field(description="`digest`, SHA-256 over the bundle's manifest.")
    outputs: list[OutputTensor]


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model without references, for bodies that FastAPI does not parse."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return resolve(definitions[value["$ref"].rpartition("/")[2]])
        return {name: resolve(item) for name, item in value.items()}

    return cast(dict[str, Any], resolve(schema))
