"""The files of a form (`multipart/form-data`), under any field name, in the order sent."""

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from service.engine import EmptyImageError
from service.errors import MalformedBodyError

__all__ = ["FORM", "read_files"]

FORM = "multipart/form-data"

# Fields that are not files are not read; a few may come along with any form.
_MOST_FIELDS = 64


async def read_files(request: Request, most: int) -> tuple[bytes, ...]:
    """At least one and at most `most` files."""
    try:
        async with request.form(max_files=most, max_fields=_MOST_FIELDS) as form:
            files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
            items = [await file.read() for file in files]
    except HTTPException as error:
        # Starlette's word for a form that cannot be read.
        raise MalformedBodyError(f"the form cannot be read: {error.detail}") from error
    if not items:
        raise EmptyImageError(
            "the form has no file, expected at least one; with curl: -F image=@photo.jpg"
        )
    return tuple(items)
