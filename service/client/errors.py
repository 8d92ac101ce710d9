"""Why a call of the client failed, one class for each way to act on it.

ClientError
├── UnreachableError          no answer: no connection, or it broke, or took too long
├── UnreadableAnswerError     an answer that is not the service's
└── ProblemError              the service rejected the request; `problem` says why
    ├── BadRequestError           400, 422 and any other 4xx: the request is wrong
    ├── DeniedError               401, 403: the key is missing or wrong
    ├── NotFoundError             404: no such model or version
    ├── TooLargeError             413: more bytes, images or descriptors than allowed
    ├── UnsupportedError          415: not an image in a format that is read
    ├── OverloadedError           429: the queue is full, or you asked too often
    ├── UnavailableError          502, 503: starting, stopping, or a worker was lost
    ├── DeadlineExceededError     504: no answer in time
    └── InternalError             any other 5xx: a bug
"""

import httpx

from service.client.answers import Problem, read_problem

__all__ = [
    "BadRequestError",
    "ClientError",
    "DeadlineExceededError",
    "DeniedError",
    "InternalError",
    "NotFoundError",
    "OverloadedError",
    "ProblemError",
    "TooLargeError",
    "UnavailableError",
    "UnreachableError",
    "UnreadableAnswerError",
    "UnsupportedError",
    "problem_error",
]


class ClientError(Exception):
    """The root of all that the client raises."""


class UnreachableError(ClientError):
    """No answer came."""


class UnreadableAnswerError(ClientError):
    """An answer that is not what the service writes."""


class ProblemError(ClientError):
    """The service answered with a problem document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status


class BadRequestError(ProblemError):
    """The request cannot be understood or used."""


class DeniedError(ProblemError):
    """The key is missing or wrong."""


class NotFoundError(ProblemError):
    """No such model or version."""


class TooLargeError(ProblemError):
    """More bytes, images or descriptors than allowed."""


class UnsupportedError(ProblemError):
    """Not an image in a format that is read."""


class OverloadedError(ProblemError):
    """The service has too much to do; try again later."""


class UnavailableError(ProblemError):
    """The service is starting or stopping, or a worker was lost; try again later."""


class DeadlineExceededError(ProblemError):
    """The service had no answer in time."""


class InternalError(ProblemError):
    """A bug of the service; its log tells more under `problem.instance`."""


_BY_STATUS: dict[int, type[ProblemError]] = {
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    413: TooLargeError,
    415: UnsupportedError,
    429: OverloadedError,
    502: UnavailableError,
    503: UnavailableError,
    504: DeadlineExceededError,
}


def problem_error(response: httpx.Response) -> ProblemError:
    """The error that an answer without success stands for."""
    other = InternalError if response.is_server_error else BadRequestError
    return _BY_STATUS.get(response.status_code, other)(read_problem(response))
