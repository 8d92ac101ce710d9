"""A front end's side of the lines to its parent, and through it to the other front ends."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from service.errors import NotReadyError, SettingsError, WorkerLostError
from service.front_ends.lines import Lines, Message
from service.front_ends.plan import FrontEndPlan
from service.repository import ModelKey, Repository
from service.siblings import Absence, SiblingStatus, versions_of

__all__ = ["Link"]

logger = logging.getLogger(__name__)

# The parent has an answer, of those that do answer, long before.
_ANSWER_TIMEOUT = 10.0
# Every worker of every front end may take a minute to load a version.
_AGREEMENT_TIMEOUT = 600.0


class Link:
    """What the parent asks for and tells; implements `Siblings`.

    Whoever runs the front end sets what is done about it.
    """

    def __init__(self, lines: Lines, plan: FrontEndPlan) -> None:
        self._lines = lines
        # Now: once it is ready, this process keeps to one core and sees no other.
        self._placements = [plan.placement(number) for number in range(plan.count)]
        self._numbers = itertools.count()
        self._questions: dict[int, asyncio.Future[Message]] = {}
        self._agreements: dict[str, asyncio.Future[None]] = {}
        self._may_accept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_drain: Callable[[str], None] = lambda _: None
        """Told why the service stops, or that the parent is gone."""
        self.on_look: Callable[[], None] = lambda: None
        """Told to look for new versions and keys."""
        self.own_status: Callable[[], SiblingStatus | None] = lambda: None
        self.own_page: Callable[[], list[Any]] = list
        """What others want to know."""

    async def listen(self) -> None:
        """Do what the parent says until it is gone."""
        async for message in self._lines:
            try:
                self._on_message(message)
            except Exception:
                logger.exception("a message of the parent process could not be handled")
        self._drain("the parent process is gone")

    def _drain(self, why: str) -> None:
        self._accept()  # or else nobody would learn of it who waits for that
        self.on_drain(why)

    def _accept(self) -> None:
        if not self._may_accept.done():
            self._may_accept.set_result(None)

    def _on_message(self, message: Message) -> None:
        kind = message["do"]
        if kind == "ping":
            self._lines.send(do="pong")
        elif kind == "accept":
            self._accept()
        elif kind == "drain":
            self._drain(message["why"])
        elif kind == "look":
            self.on_look()
        elif kind == "ask":
            self._lines.send(do="answer", id=message["id"], told=self._own(message["what"]))
        elif kind == "answer":
            if (question := self._questions.pop(message["id"], None)) and not question.done():
                question.set_result(message)
        elif agreement := self._agreements.pop(message["version"], None):
            self._conclude(agreement, message)

    @staticmethod
    def _conclude(agreement: "asyncio.Future[None]", message: Message) -> None:
        if agreement.done():
            return
        if message["do"] == "publish":
            agreement.set_result(None)
        else:
            agreement.set_exception(WorkerLostError("another front end could not load it"))

    def _own(self, what: str) -> object:
        if what == "pages":
            return self.own_page()
        status = self.own_status()
        return status and status.to_json()

    # -- Start and stop ----------------------------------------------------------------------

    async def be_ready(self, repository: Repository) -> None:
        """Say that this front end is ready; returns when connections may be accepted."""
        self._lines.send(do="ready", **_told(repository))
        await self._may_accept

    def fail(self, error: Exception) -> None:
        """Say why this front end cannot serve."""
        self._lines.send(do="fail", why=str(error), setting=isinstance(error, SettingsError))

    async def close(self) -> None:
        """Have all that was said written, and hang up."""
        await self._lines.close()

    # -- Siblings ----------------------------------------------------------------------------

    async def statuses(self) -> list[SiblingStatus]:
        """All others at this moment, by number."""
        answer = await self._ask("status")
        return [self._status(number, told) for number, told in answer["told"]]

    def _status(self, number: int, told: Any) -> SiblingStatus:
        if isinstance(told, dict):
            return SiblingStatus.from_json(number, told)
        placement = self._placements[number]
        absence: Absence = "silent" if told == "silent" else "starting"
        return SiblingStatus.absent(number, absence, placement.first_worker, placement.workers)

    async def pages(self, own: Callable[[], list[Any]]) -> list[list[Any]]:
        """The metrics of all others, of front ends that have ended too."""
        answer = await self._ask("pages", own())
        found: list[list[Any]] = answer["told"]
        return found

    async def _ask(self, what: str, own: Sequence[Any] = ()) -> Message:
        number = next(self._numbers)
        self._questions[number] = asyncio.get_running_loop().create_future()
        self._lines.send(do="ask", id=number, what=what, own=own)
        try:
            return await asyncio.wait_for(self._questions[number], _ANSWER_TIMEOUT)
        except TimeoutError as error:
            raise NotReadyError("the parent process of the front ends does not answer") from error
        finally:
            self._questions.pop(number, None)

    async def agree(self, key: ModelKey, digest: str) -> None:
        """Return when all have loaded a version; raises `WorkerLostError` if one cannot."""
        version = _version(key, digest)
        self._agreements[version] = agreement = asyncio.get_running_loop().create_future()
        self._lines.send(do="loaded", version=version)
        try:
            await asyncio.wait_for(agreement, _AGREEMENT_TIMEOUT)
        except TimeoutError as error:
            raise WorkerLostError("another front end has not loaded it in time") from error
        finally:
            self._agreements.pop(version, None)

    def tell(self, repository: Repository) -> None:
        """Note what is served and rejected from now on."""
        self._lines.send(do="tell", **_told(repository))


def _told(repository: Repository) -> Message:
    """What the parent has to know so that all front ends serve the same."""
    serves = [_version(key, digest) for key, digest in versions_of(repository).items()]
    rejects = [_version(item.key, "") for item in repository.rejected]
    return {"serves": serves, "rejects": rejects}


def _version(key: ModelKey, digest: str) -> str:
    """A version as the parent tells it from others."""
    return f"{key.name}/{key.version} {digest}"
