"""What goes wrong around the engine: requests, settings, and the state of the service.

LeafcodeError (the engine's root)
├── RequestError            whoever wrote the request
│   ├── MalformedBodyError      not JSON, or not a form
│   ├── InvalidBodyError        JSON, but not what the call expects
│   ├── OversizedBodyError      more bytes or more items than allowed
│   ├── UnsupportedBodyError    a content type that the call does not read
│   ├── NotAcceptableError      an answer that the call cannot write
│   ├── SlowBodyError           a body that does not come
│   ├── SlowHeadersError        headers that do not come
│   ├── OversizedHeadersError   more bytes or more lines of headers than allowed
│   ├── InvalidParameterError   a query, path or header parameter out of range
│   └── InvalidRequestError     not HTTP
├── UnauthorizedError       whoever has no key
├── UnknownModelError       whoever chose the model
├── NotReadyError           whoever waits for the service
├── OverloadedError         whoever sends more than the workers can do
├── NoConnectionError       whoever connects while all connections are in use
├── DeadlineError           whoever set the time limit
├── WorkerLostError         whoever sent what two workers died of, or runs the machine
└── SettingsError           whoever starts the service
"""

from service.engine import LeafcodeError

__all__ = [
    "DeadlineError",
    "InvalidBodyError",
    "InvalidParameterError",
    "InvalidRequestError",
    "MalformedBodyError",
    "NoConnectionError",
    "NotAcceptableError",
    "NotReadyError",
    "OverloadedError",
    "OversizedBodyError",
    "OversizedHeadersError",
    "RequestError",
    "SettingsError",
    "SlowBodyError",
    "SlowHeadersError",
    "UnauthorizedError",
    "UnknownModelError",
    "UnsupportedBodyError",
    "WorkerLostError",
]


class RequestError(LeafcodeError):
    """A request that cannot be understood."""


class MalformedBodyError(RequestError):
    """A body whose syntax is wrong."""


class InvalidBodyError(RequestError):
    """A body with the right syntax and the wrong content."""


class OversizedBodyError(RequestError):
    """A body with more bytes or more items than the limit."""


class UnsupportedBodyError(RequestError):
    """A body of a type that this call does not read."""


class NotAcceptableError(RequestError):
    """An answer of a type that this call does not write."""


class SlowBodyError(RequestError):
    """A body that came too slowly, or not at all."""


class SlowHeadersError(RequestError):
    """Headers that came too slowly, or not at all."""


class OversizedHeadersError(RequestError):
    """Headers with more bytes or more lines than the limit."""


class InvalidRequestError(RequestError):
    """Bytes that are not an HTTP request."""


class InvalidParameterError(RequestError):
    """A query, path or header parameter that cannot be used."""


class UnauthorizedError(LeafcodeError):
    """A request without a key that is known."""


class UnknownModelError(LeafcodeError):
    """A model or version that is not loaded."""


class NotReadyError(LeafcodeError):
    """The service is starting or stopping."""


class OverloadedError(LeafcodeError):
    """The queue is full; worth another try after `retry_after` whole seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoConnectionError(LeafcodeError):
    """A connection beyond the most that are allowed, all of which are in use."""


class DeadlineError(LeafcodeError):
    """No answer within the time that the client or the service allows."""


class WorkerLostError(LeafcodeError):
    """A worker whose process ended, and the one that tried again, too."""


class SettingsError(LeafcodeError):
    """A setting, or an address to listen on, that cannot be used."""
