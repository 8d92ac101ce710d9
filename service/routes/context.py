"""What a running service consists of, as far as routes need it."""

from dataclasses import dataclass

from starlette.requests import Request

from service.errors import NotReadyError
from service.pool.pool import Pool
from service.repository import Repository
from service.settings import Settings
from service.siblings import Siblings

__all__ = ["Context", "context_of"]


@dataclass(frozen=True)
class Context:
    """The parts that the application puts together when it starts.

    A reload replaces it by one with another repository; a request sees the same one throughout.
    """

    settings: Settings
    repository: Repository
    pool: Pool
    siblings: Siblings


def context_of(request: Request) -> Context:
    """The parts of the running service; raises `NotReadyError` before it has started."""
    context = getattr(request.app.state, "context", None)
    if not isinstance(context, Context) or not context.pool.accepting:
        raise NotReadyError("the service is starting or stopping, try again in a moment")
    return context
