"""Probes: alive is the event loop, ready is the pool."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from service.errors import NotReadyError
from service.http.problems import documented
from service.pool.state import WorkerState
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
    found = await require_ready(context_of(request), strict=strict)
    workers = [WorkerStatus.model_validate(worker) for worker in found]
    return Readiness(status="ready", workers=workers)


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Redirects to the documentation."""
    return RedirectResponse("/docs")


async def require_ready(context: Context, *, strict: bool = False) -> list[WorkerState]:
    """All workers of a service that is ready; else raises `NotReadyError`, which names them.

    A request may get to any front end that takes connections, so all of those have to be ready.
    """
    siblings = await context.siblings.statuses()
    state = context.pool.state()
    pools = [state, *(sibling.pool for sibling in siblings)]
    workers = sorted((item for pool in pools for item in pool.workers), key=lambda it: it.number)
    obstacles = state.obstacles(strict=strict)
    for sibling in siblings:
        obstacles += sibling.obstacles(strict=strict)
    if obstacles:
        others = [told for it in workers if state.accepting and (told := str(it)) not in obstacles]
        raise NotReadyError("; ".join([*obstacles, *others]))
    return workers
