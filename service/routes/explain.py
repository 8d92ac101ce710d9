"""`POST /v1/explain`: where in an image the score of a label comes from."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.formats.explanations import Explaining, ExplanationForm
from service.http.disconnect import while_connected
from service.http.negotiation import choose_for
from service.http.problems import documented
from service.observability.request_record import observe
from service.repository import ModelKey
from service.routes.context import context_of
from service.routes.images import read_images
from service.routes.openapi import EXPLAIN_ANSWER, EXPLAIN_BODY
from service.routes.parameters import ExplainParameters, openapi_parameters, read_parameters
from service.routes.schemas import ImageExplanation

__all__ = ["direct_router"]

direct_router = APIRouter(prefix="/v1", tags=["explain"])

_FORMS: dict[str, ExplanationForm] = {"application/json": "json", "image/png": "png"}


@direct_router.post(
    "/explain",
    operation_id="explain",
    summary="Where the score of a label comes from",
    response_model=ImageExplanation,
    responses={200: EXPLAIN_ANSWER, **documented(400, 404, 406, 413, 415, 422, 429, 503, 504)},
    openapi_extra={"parameters": openapi_parameters(ExplainParameters), **EXPLAIN_BODY},
)
async def explain(request: Request) -> Response:
    """A map of the image whose cells and bias add up to the score of a label.

    That is the best label unless `label` names another one; with `against`, the difference of
    two labels' scores is explained. `Accept: image/png` asks for the image at working size with
    the map over it, red for the label and blue against it.
    """
    context = context_of(request)
    asked, form = read_parameters(ExplainParameters, request.scope), choose_for(request, _FORMS)
    manifest = context.repository.find(asked.model, asked.version).manifest
    observe(request.scope, manifest)
    pool = context.pool
    pool.check_room()
    (image,) = (await read_images(request, most=1)).items
    wanted = Explaining(asked.label, asked.against, _FORMS[form])
    work = pool.explain(ModelKey.of(manifest), image, wanted, asked.timeout)
    explained = await while_connected(request.scope, work, queued=pool.would_wait)
    observe(request.scope, manifest, explained.timings)
    return Response(explained.value, media_type=form, headers={"Vary": "Accept"})
