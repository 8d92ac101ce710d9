"""New versions without a restart: look at the repository, prove, load, then switch.

A look is asked for by SIGHUP or made at an interval. A new version is published when every
worker has it, of every front end; one that cannot be served is rejected, and what is loaded is
still served. One that was rejected for a reason outside of it, such as a lack of memory, is tried
again. A version whose folder is gone is unpublished at once and unloaded when the last request that
may have chosen it is over. Published versions never change: other content under the same
number would give other answers under the same name, so it is rejected.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.engine import BundleError, LeafcodeError, UnreadableBundleError
from service.errors import WorkerLostError
from service.http.in_flight import RequestCount
from service.pool.pool import Pool
from service.repository import (
    Model,
    ModelKey,
    Rejection,
    Repository,
    VersionFiles,
    read_model,
    survey,
)

__all__ = ["Reloader"]

logger = logging.getLogger(__name__)

# After a failure that says nothing about a version, looks follow at growing intervals.
_FIRST_RETRY_SECONDS = 2.0
_LONGEST_RETRY_SECONDS = 300.0


class Reloader:
    """Keeps what is served in step with a folder; made inside a running event loop."""

    def __init__(
        self,
        folder: Path,
        repository: Repository,
        pool: Pool,
        requests: RequestCount,
        publish: Callable[[Repository], None],
    ) -> None:
        self._folder = folder
        self._repository = repository
        self._pool = pool
        self._requests = requests
        self._publish = publish
        self.agree: Callable[[ModelKey, str], Awaitable[None]] = _agree_at_once
        """Returns when a version may be published that is loaded here; raises if it may not."""
        self._judged: dict[ModelKey, tuple[int, ...]] = {}
        self._retiring: set[ModelKey] = set()
        self._complaint = ""
        # What came while the service was starting is found by the first look.
        self._asked = asyncio.Event()
        self._asked.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._retry_seconds = _FIRST_RETRY_SECONDS

    def start(self, poll_seconds: int) -> None:
        """Look when asked to, and every `poll_seconds` unless that is zero."""
        self._pool.on_damaged = self._give_up
        self._begin(self._keep_looking(poll_seconds))

    async def stop(self) -> None:
        """Leave everything as it is."""
        self._cancel_retry()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ask(self) -> None:
        """Look soon; asking again before that changes nothing."""
        self._asked.set()

    async def look(self) -> None:
        """Compare the folder with what is served, and act on every difference."""
        try:
            found = await asyncio.to_thread(survey, self._folder)
        except BundleError as error:
            self._complain(f"{error}; everything loaded is still served")
            return
        for key in sorted(found):
            if not self._pool.accepting:
                return
            if key not in self._retiring:
                await self._judge(key, found[key])
        self._forgive(found)
        self._retire(found)

    async def _keep_looking(self, poll_seconds: int) -> None:
        while True:
            try:
                await asyncio.wait_for(self._asked.wait(), poll_seconds or None)
                logger.debug("looking for new versions in %s", self._folder)
            except TimeoutError:
                pass
            self._asked.clear()
            self._cancel_retry()
            try:
                await self.look()
            except Exception:
                logger.exception("looking for new versions failed; what is loaded is still served")
                self._look_again_later()
            if self._retry is None:
                self._retry_seconds = _FIRST_RETRY_SECONDS

    def _look_again_later(self) -> None:
        """Look without being asked to; the next time it takes longer."""
        if self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(self._retry_seconds, self.ask)
            self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY_SECONDS)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # -- Versions that are new -------------------------------------------------------------

    async def _judge(self, key: ModelKey, files: VersionFiles) -> None:
        """Serve a version or reject it, and not again until its files change.

        What says nothing about the version, such as a lost process or a lack of memory,
        rejects it for now; it is tried again.
        """
        if self._judged.get(key) == files.fingerprint:
            return
        self._judged[key] = files.fingerprint
        try:
            await self._load(key, files.path)
        except Exception as error:  # noqa: BLE001
            self._reject(key, error)
            if not _is_final(error):
                del self._judged[key]
                self._look_again_later()

    async def _load(self, key: ModelKey, path: Path) -> None:
        model = await asyncio.to_thread(read_model, key, path)
        loaded = self._repository.models.get(key)
        if loaded is None:
            await self._pool.load(key, model)
            await self._agree_on(key, model.manifest.digest)
            self._switch({**self._repository.models, key: model}, self._rejections_but({key}))
            logger.info("%s is loaded and served, digest %s", key, model.manifest.digest)
        elif loaded.manifest.digest == model.manifest.digest:
            self._switch(self._repository.models, self._rejections_but({key}))
        else:
            raise BundleError(
                f"{path}: has the digest {model.manifest.digest}, {loaded.manifest.digest} is "
                "loaded; a published version never changes, expected a new version number"
            )

    async def _agree_on(self, key: ModelKey, digest: str) -> None:
        """Wait until other front ends have the version, too; without them, nobody keeps it."""
        try:
            await self.agree(key, digest)
        except BaseException:
            self._pool.retire(key)
            if self._pool.accepting:
                await self._pool.unload(key)
            raise

    def _reject(self, key: ModelKey, error: Exception) -> None:
        sentence = str(error)
        if not isinstance(error, LeafcodeError):
            sentence = f"it could not be loaded this time: {sentence or type(error).__name__}"
        logger.error("%s is rejected, what is loaded is still served: %s", key, sentence)
        # Clients need no path of this machine.
        sentence = sentence.replace(f"{self._folder.absolute()}/", "")
        since = datetime.now(UTC).isoformat(timespec="seconds")
        rejection = Rejection(key, sentence, since)
        self._switch(self._repository.models, (*self._rejections_but({key}), rejection))

    # -- Versions that are gone ------------------------------------------------------------

    def _forgive(self, found: Iterable[ModelKey]) -> None:
        """Rejected versions that are gone need no more words."""
        gone = {item.key for item in self._repository.rejected}.difference(found)
        if gone:
            self._switch(self._repository.models, self._rejections_but(gone))
        self._judged = {key: self._judged[key] for key in self._judged if key in found}

    def _retire(self, found: Iterable[ModelKey]) -> None:
        """Unpublish what is gone, unless nothing would be left, which is probably a mistake."""
        gone = set(self._repository.models).difference(found)
        if len(gone) == len(self._repository.models):
            self._complain(f"{self._folder}: nothing is left; everything loaded is still served")
            return
        default = self._repository.default_key
        if default in gone and default.name not in {key.name for key in found}:
            # Requests that name no model must not get the labels of another one.
            self._complain(f"{self._folder}: the default model is gone; {default} is still served")
            gone.remove(default)
        else:
            self._complaint = ""
        if gone:
            self._withdraw(gone)

    def _give_up(self, key: ModelKey, error: BundleError) -> None:
        """Reject a version whose files were changed in place, unless nothing would be left.

        Workers that have it mapped may give wrong answers, and no other worker can load it.
        """
        if key not in self._repository.models:
            return
        changed = f"its files were changed in place while it was served: {error}"
        if len(self._repository.models) == 1:
            self._complain(f"{key}: {changed}; it is the only version, publish another one")
            return
        self._reject(key, BundleError(changed))
        self._withdraw({key})

    def _withdraw(self, gone: set[ModelKey]) -> None:
        """Publish without some versions; they are unloaded when no request needs them any more."""
        models = {key: item for key, item in self._repository.models.items() if key not in gone}
        self._switch(models, self._repository.rejected)
        for key in gone:
            logger.info("%s is served no more", key)
            self._pool.retire(key)
        self._retiring |= gone
        self._begin(self._unload(gone))

    async def _unload(self, gone: set[ModelKey]) -> None:
        await self._requests.wait_for_present()
        for key in sorted(gone):
            await self._pool.unload(key)
            logger.info("%s is unloaded", key)
        self._retiring -= gone
        # One of them may have come back meanwhile.
        self.ask()

    # -- Both ------------------------------------------------------------------------------

    def _switch(self, models: Mapping[ModelKey, Model], rejected: Iterable[Rejection]) -> None:
        """Every request sees the old state or the new one, whole."""
        ordered = tuple(sorted(rejected, key=lambda item: item.key))
        self._repository = replace(self._repository, models=dict(models), rejected=ordered)
        self._publish(self._repository)

    def _rejections_but(self, keys: set[ModelKey]) -> tuple[Rejection, ...]:
        return tuple(item for item in self._repository.rejected if item.key not in keys)

    def _complain(self, sentence: str) -> None:
        """Once, not at every look."""
        if sentence != self._complaint:
            logger.error(sentence)
        self._complaint = sentence

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _agree_at_once(key: ModelKey, digest: str) -> None:
    """The only front end waits for no other."""


def _is_final(error: Exception) -> bool:
    """Whether an error is about the version itself, not about the machine at that moment."""
    passing = isinstance(error, WorkerLostError | UnreadableBundleError)
    return isinstance(error, LeafcodeError) and not passing
