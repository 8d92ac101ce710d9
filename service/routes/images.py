"""Images of a request: the raw body, the files of a form, or base64 in JSON.

Any other content type is a raw image: curl, for one, calls every body a URL-encoded form.
"""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from service.formats.json_bodies import Images, parse_images
from service.http.body import FORM, media_type, read_body, read_files

__all__ = ["read_images"]


async def read_images(request: Request, most: int) -> Images:
    """The images of a request, of which it may hold so many."""
    found = media_type(request.scope)
    if found == FORM:
        files = await read_files(request, most)
        return Images(files, several=len(files) > 1)
    body = await read_body(request)
    if found == "application/json" and body:
        return await run_in_threadpool(parse_images, body, most)
    return Images((body,), several=False)
