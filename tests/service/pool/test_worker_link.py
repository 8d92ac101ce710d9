"""The socket to a worker, with the test at its other end and a virtual clock."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO

import pytest

from service.errors import WorkerLostError
from service.pool.frames import Frame, Kind, read_frame
from service.pool.worker_link import WorkerLink
from tests.support.virtual_time import on_virtual_time, settle


class OtherEnd:
    """The worker's end of the socket, and the frames that the link passed on."""

    def __init__(self, theirs: socket.socket) -> None:
        self.received: list[Frame] = []
        self._socket = theirs
        theirs.settimeout(0)

    def read(self) -> Frame:
        """The frame that was sent to the worker."""
        frame = read_frame(BytesIO(self._socket.recv(1_000_000)))
        assert frame is not None
        return frame

    def answer(self, frame: Frame, body: bytes = b"") -> None:
        answer = Frame(Kind.DONE, frame.job, {}, body)
        self.write(answer.head() + body)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[WorkerLink, OtherEnd]]:
    ours, theirs = socket.socketpair()
    with theirs:
        other_end = OtherEnd(theirs)
        link = WorkerLink(other_end.received.append)
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
        try:
            yield link, other_end
        finally:
            link.abort()
            await link.closed


@on_virtual_time
async def test_answers_to_jobs_are_passed_on() -> None:
    async with linked() as (link, other_end):
        job = Frame(Kind.CLASSIFY, 7, {"top_k": 1}, b"image")
        link.send(job)
        assert other_end.read() == job
        other_end.answer(job, b"labels")
        await settle()
        assert other_end.received == [Frame(Kind.DONE, 7, {}, b"labels")]


@on_virtual_time
async def test_a_body_that_is_not_joined_to_its_header_arrives_whole() -> None:
    async with linked() as (link, other_end):
        job = Frame(Kind.CLASSIFY, 7, {}, bytes(131_073))
        link.send(job)
        assert other_end.read() == job


@on_virtual_time
async def test_a_call_returns_its_answer_which_is_passed_on_to_nobody_else() -> None:
    async with linked() as (link, other_end):
        call = asyncio.create_task(link.call(Kind.LOAD, {"name": "tiny"}, 60.0))
        await settle()
        question = other_end.read()
        assert (question.kind, question.fields) == (Kind.LOAD, {"name": "tiny"})
        other_end.answer(question)
        assert (await call).job == question.job
        assert other_end.received == []


@on_virtual_time
async def test_calls_have_numbers_that_no_job_has() -> None:
    async with linked() as (link, other_end):
        numbers = []
        for _ in range(2):
            call = asyncio.create_task(link.call(Kind.PING, {}, 1.0))
            await settle()
            numbers.append(other_end.read().job)
            call.cancel()
        assert numbers == [2**63, 2**63 + 1]


@on_virtual_time
async def test_a_call_without_an_answer_ends_when_its_time_is_over() -> None:
    async with linked() as (link, _):
        with pytest.raises(WorkerLostError, match="no answer within 5 s"):
            await link.call(Kind.PING, {}, 5.0)
        assert asyncio.get_running_loop().time() == 5.0


@on_virtual_time
async def test_the_late_answer_to_a_call_is_not_taken_for_that_of_the_next() -> None:
    async with linked() as (link, other_end):
        with pytest.raises(WorkerLostError):
            await link.call(Kind.PING, {}, 5.0)
        late = other_end.read()
        call = asyncio.create_task(link.call(Kind.PING, {}, 5.0))
        other_end.answer(late)
        await settle()
        assert not call.done()
        other_end.answer(other_end.read())
        await call


@on_virtual_time
async def test_a_call_ends_at_once_when_the_worker_goes_away() -> None:
    async with linked() as (link, other_end):
        call = asyncio.create_task(link.call(Kind.PING, {}, 5.0))
        await settle()
        other_end.close()
        with pytest.raises(WorkerLostError, match="its process ended"):
            await call
        assert link.closed.done()
        assert asyncio.get_running_loop().time() == 0.0


@on_virtual_time
async def test_a_worker_that_sends_no_frames_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with linked() as (link, other_end):
        with caplog.at_level(logging.ERROR):
            other_end.write(b"\xff" * 100)
            await link.closed
        assert "bytes that are not a frame" in caplog.text
