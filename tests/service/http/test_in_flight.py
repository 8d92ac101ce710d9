"""Requests under way are counted, so that a version is dropped when nobody needs it."""

import asyncio

from service.http.in_flight import RequestCount
from tests.support.virtual_time import on_virtual_time, settle


@on_virtual_time
async def test_requests_are_waited_for_up_to_the_present() -> None:
    count = RequestCount()
    await count.wait_for_present()
    first, second = count.begin(), count.begin()
    waiting = asyncio.create_task(count.wait_for_present())
    await settle()
    third = count.begin()
    for number, over in ((second, False), (first, True), (third, True)):
        count.end(number)
        await settle()
        assert waiting.done() == over
