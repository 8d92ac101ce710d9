"""The same engine behind other servers, as one would write it without the service's pool.

Each is a program of its own: `python -m … BUNDLE CORE…`. It pins one worker to each core
as far as its framework allows, says `worker <pid>` for each and `ready at http://…`.
"""

import contextlib
import http.client
import os
import socket
import sys
import threading
import time

from service.engine import Engine, Prediction

__all__ = ["Answer", "announce", "answer", "free_port", "load_engine"]

Answer = dict[str, list[dict[str, str | float]]]

_POLL_SECONDS = 0.05


def load_engine(bundle: str, core: int) -> Engine:
    """Load the engine into this worker, and pin it as the service pins its own."""
    os.sched_setaffinity(0, {core})
    engine = Engine.load(bundle)
    _say(f"worker {os.getpid()}")
    return engine


def answer(predictions: tuple[Prediction, ...]) -> Answer:
    """Return the part of the service's answer that depends on the image."""
    return {
        "predictions": [
            {"label": item.label, "probability": item.probability} for item in predictions
        ]
    }


def free_port() -> int:
    """Find a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def announce(port: int, path: str) -> None:
    """Say that the server on this port is ready, once it answers for this page."""
    threading.Thread(target=_wait_and_announce, args=(port, path), daemon=True).start()


def _wait_and_announce(port: int, path: str) -> None:
    while not _answers(port, path):
        time.sleep(_POLL_SECONDS)
    _say(f"ready at http://127.0.0.1:{port}")


def _answers(port: int, path: str) -> bool:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
