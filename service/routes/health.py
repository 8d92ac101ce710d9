"""Probes: alive is the event loop, ready is the pool."""

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from service.errors import NotReadyError
from service.http.problems import documented
from service.routes.context import Context, context_of
from service.routes.schemas import Health

__all__ = ["require_ready", "router"]

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Alive")
async def healthz() -> Health:
    """Answers as long as the process does."""
    return Health(status="ok")


@router.get("/readyz", summary="Ready for work", responses=documented(503))
async def readyz(request: Request) -> Health:
    """Answers 503 unless every worker is alive, has its models and answers."""
    require_ready(context_of(request))
    return Health(status="ready")


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Redirects to the documentation."""
    return RedirectResponse("/docs")


def require_ready(context: Context) -> None:
    """Raise `NotReadyError` with every obstacle, if there is one."""
    obstacles = context.pool.state().obstacles()
    if obstacles:
        raise NotReadyError("; ".join(obstacles))
