"""What the service and its models tell about themselves in the protocol's words."""

from collections.abc import Iterable, Sequence
from typing import Literal

from service import __version__
from service.engine import Manifest
from service.formats.v2.signature import INPUTS, output_types
from service.formats.v2.tensors import Datatype, TensorType
from service.repository import ModelKey
from service.routes.v2 import schemas

__all__ = ["index", "model_config", "model_metadata", "server_metadata"]

_PLATFORM = "leafcode"
# Those that work in full. The repository has an index, but no load and unload; requests
# have a timeout, but no priority.
_EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration"]

ConfigType = Literal["TYPE_BOOL", "TYPE_STRING", "TYPE_FP32", "TYPE_INT32"]
_CONFIG_TYPES: dict[Datatype, ConfigType] = {
    "BOOL": "TYPE_BOOL",
    "BYTES": "TYPE_STRING",
    "FP32": "TYPE_FP32",
    "INT32": "TYPE_INT32",
}


def server_metadata() -> schemas.ServerMetadata:
    """The answer to `GET /v2`."""
    return schemas.ServerMetadata(name="leafcode", version=__version__, extensions=_EXTENSIONS)


def model_metadata(manifest: Manifest, versions: Sequence[int]) -> schemas.ModelMetadata:
    """What a model reads and answers."""
    return schemas.ModelMetadata(
        name=manifest.name,
        versions=[str(version) for version in versions],
        platform=_PLATFORM,
        inputs=[_tensor(kind) for kind in INPUTS.values()],
        outputs=[_tensor(kind) for kind in output_types(manifest)],
    )


def model_config(manifest: Manifest) -> schemas.ModelConfig:
    """The same in the words of Triton's model configuration."""
    return schemas.ModelConfig(
        name=manifest.name,
        platform=_PLATFORM,
        backend=_PLATFORM,
        max_batch_size=0,
        input=[
            schemas.ModelConfigInput(
                name=kind.name, data_type=_CONFIG_TYPES[kind.datatype], dims=list(kind.shape)
            )
            for kind in INPUTS.values()
        ],
        output=[
            schemas.ModelConfigTensor(
                name=kind.name, data_type=_CONFIG_TYPES[kind.datatype], dims=list(kind.shape)
            )
            for kind in output_types(manifest)
        ],
    )


def index(keys: Iterable[ModelKey]) -> list[schemas.IndexEntry]:
    """Versions that are ready."""
    return [
        schemas.IndexEntry(name=key.name, version=str(key.version), state="READY", reason="")
        for key in keys
    ]


def _tensor(kind: TensorType) -> schemas.TensorMetadata:
    return schemas.TensorMetadata(name=kind.name, datatype=kind.datatype, shape=list(kind.shape))
