"""Probes: alive is the event loop, ready is the pool."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from service.errors import NotReadyError
from service.http.problems import documented
from service.pool.state import PoolState
from service.routes.context import Context, context_of
from service.routes.schemas import Health, Readiness, WorkerStatus

__all__ = ["require_ready", "router"]

router = APIRouter(tags=["health"])

Strict = Annotated[bool, Query(description="Ask for all workers; one is enough otherwise.")]


@router.get("/healthz", summary="Alive")
async def health() -> Health:
    """Answers as long as the process does."""
    return Health(status="ok")


@router.get("/readyz", summary="Ready for work", responses=documented(422, 503))
async def ready(request: Request, *, strict: Strict = False) -> Readiness:
    """Answers 503 unless work is accepted and a worker that has proved its models is in service."""
    state = require_ready(context_of(request), strict=strict)
    workers = [WorkerStatus.model_validate(worker) for worker in state.workers]
    return Readiness(status="ready", workers=workers)


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Redirects to the documentation."""
    return RedirectResponse("/docs")


def require_ready(context: Context, *, strict: bool = False) -> PoolState:
    """The state of a pool that is ready; else raises `NotReadyError`, which names every worker."""
    state = context.pool.state()
    if obstacles := state.obstacles(strict=strict):
        others = [str(worker) for worker in state.workers if worker.ready and state.accepting]
        raise NotReadyError("; ".join([*obstacles, *others]))
    return state
