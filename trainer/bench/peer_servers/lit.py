"""The engine as a `LitAPI` behind a `LitServer`, workers restarted when they die."""

import os
import sys
from typing import Annotated

import litserve
from fastapi import Body

from service.engine import Prediction
from trainer.bench.peer_servers import Answer, announce, answer, free_port, load_engine

__all__ = ["EngineAPI", "main"]


class EngineAPI(litserve.LitAPI):  # type: ignore[misc]  # it comes without types
    """Answers the bytes of an image with its labels."""

    def __init__(self, bundle: str, cores: list[int]) -> None:
        super().__init__(api_path="/v1/classify")
        self.bundle = bundle
        self.cores = cores

    def setup(self, device: str) -> None:  # noqa: ARG002
        """Load the engine into the worker."""
        number = int(os.environ["LITSERVE_WORKER_ID"])
        self.engine = load_engine(self.bundle, self.cores[number % len(self.cores)])

    def decode_request(
        self, request: Annotated[bytes, Body(media_type="application/octet-stream")]
    ) -> bytes:
        """Take the raw body as it is."""
        return request

    def predict(self, x: bytes) -> tuple[Prediction, ...]:
        """Classify one image."""
        return self.engine.classify(x)

    def encode_response(self, output: tuple[Prediction, ...]) -> Answer:
        """Return what is sent as JSON."""
        return answer(output)


def main(bundle: str, *cores: str) -> None:
    """Serve until stopped."""
    places = [int(core) for core in cores]
    server = litserve.LitServer(
        EngineAPI(bundle, places),
        accelerator="cpu",
        workers_per_device=len(places),
        restart_workers=True,
    )
    port = free_port()
    announce(port, "/health")
    server.run(host="127.0.0.1", port=port, log_level="warning", generate_client_file=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
