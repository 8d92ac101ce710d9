"""A small typed client of the service, blocking and asynchronous, on httpx and numpy alone."""

from service.client.answers import (
    Classification,
    ImageCodes,
    ModelCard,
    ModelRef,
    Problem,
    RankedLabel,
    SparseCodes,
)
from service.client.clients import AsyncClient, Client
from service.client.errors import (
    BadRequestError,
    ClientError,
    DeadlineExceededError,
    DeniedError,
    InternalError,
    NotFoundError,
    OverloadedError,
    ProblemError,
    TooLargeError,
    UnavailableError,
    UnreachableError,
    UnreadableAnswerError,
    UnsupportedError,
)

__all__ = [
    "AsyncClient",
    "BadRequestError",
    "Classification",
    "Client",
    "ClientError",
    "DeadlineExceededError",
    "DeniedError",
    "ImageCodes",
    "InternalError",
    "ModelCard",
    "ModelRef",
    "NotFoundError",
    "OverloadedError",
    "Problem",
    "ProblemError",
    "RankedLabel",
    "SparseCodes",
    "TooLargeError",
    "UnavailableError",
    "UnreachableError",
    "UnreadableAnswerError",
    "UnsupportedError",
]
