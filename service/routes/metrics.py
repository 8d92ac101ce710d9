"""`GET /metrics`: the numbers of all processes on one page."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.observability.ended_requests import EndedRequests
from service.observability.metrics import Metrics
from service.siblings import Siblings

__all__ = ["router"]

router = APIRouter(tags=["health"])

_TEXT = {"schema": {"type": "string", "description": "Prometheus's text format."}}
_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT}}
}


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response, responses=_PAGE)
async def get_metrics(request: Request) -> Response:
    """Counts, durations and the state of the pool, as text or as OpenMetrics."""
    ended: EndedRequests = request.app.state.ended_requests
    ended.flush()
    metrics: Metrics = request.app.state.metrics
    siblings: Siblings = request.app.state.siblings
    others = await siblings.pages(metrics.numbers)
    page, content_type = metrics.page(request.headers.get("accept", ""), others)
    return Response(page, media_type=content_type)
