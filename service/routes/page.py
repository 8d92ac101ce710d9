"""`GET /` and `/web/…`: the page for people, as it lies in `service/web/`.

All files are read once, at the start, so that no path of a request ever reaches the disk.
The page needs nothing of other hosts and has no script within its HTML; its
Content-Security-Policy has the browser hold it to that.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service.http.entity_tags import names

__all__ = ["read_paths", "router"]

_PACKAGE = Path(__file__).parents[1]
_START = "/"
_FOLDER = "/web/"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' blob: data:",
    "media-src blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
_HEADERS = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # To be asked for again every time, and answered 304 as long as it is the same.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str
    tag: str


router = APIRouter(include_in_schema=False)


@router.api_route(_START, methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page."""
    return _answer(request, _START)


@router.api_route(_FOLDER + "{path:path}", methods=["GET", "HEAD"])
async def page_file(request: Request, path: str) -> Response:
    """A file that the page consists of, or an example drawing."""
    return _answer(request, _FOLDER + path)


def read_paths() -> frozenset[str]:
    """All paths of the page and its files, which are read now; none of them is secret."""
    return frozenset(_files())


def _answer(request: Request, path: str) -> Response:
    file = _files().get(path)
    if file is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "ETag": file.tag}
    if names(request.headers.get("if-none-match", ""), file.tag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


@cache
def _files() -> dict[str, _File]:
    """Every file by its path; whatever else lies in the folders is not served."""
    return {path: _read(file) for path, file in _found()}


def _found() -> Iterator[tuple[str, Path]]:
    yield _START, _PACKAGE / "web" / "index.html"
    for file in sorted((_PACKAGE / "web").iterdir()):
        if file.suffix in _MEDIA_TYPES and file.suffix != ".html":
            yield _FOLDER + file.name, file
    for file in sorted((_PACKAGE / "examples").glob("*.png")):
        yield f"{_FOLDER}examples/{file.name}", file


def _read(file: Path) -> _File:
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, _MEDIA_TYPES[file.suffix], tag)
