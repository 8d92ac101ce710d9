"""Images for Leafcode, sent by Locust, as `make locust` does it.

    IMAGES=photos locust -f docker/loadtest/locustfile.py --host http://127.0.0.1:8000

`IMAGES` is a folder; `API_KEY` goes to a service that asks for one. Every user waits for an
answer before it sends the next image, so the time that others would have waited is not seen:
for that, use `python -m service loadtest --rate`.
"""

import os
import random
import sys
from pathlib import Path

from locust import FastHttpUser, constant, task

FOLDER = Path(os.environ.get("IMAGES", "service/examples"))
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
IMAGES = [
    path.read_bytes() for path in sorted(FOLDER.rglob("*")) if path.suffix.lower() in SUFFIXES
]
if not IMAGES:
    sys.exit(f"no images in {FOLDER}; IMAGES names a folder of them")

HEADERS = {"Content-Type": "image/png"}  # any image type will do
if os.environ.get("API_KEY"):
    HEADERS["Authorization"] = f"Bearer {os.environ['API_KEY']}"


class Client(FastHttpUser):
    """Somebody who asks for the labels of one image after the other."""

    host = os.environ.get("URL", "http://127.0.0.1:8000")
    wait_time = constant(0)

    @task
    def classify(self) -> None:
        """Ask for labels; an answer without any counts as an error."""
        image = random.choice(IMAGES)  # noqa: S311
        with self.client.post(
            "/v1/classify", data=image, headers=HEADERS, catch_response=True
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}: {answer.text}")
            elif not answer.json().get("predictions"):
                answer.failure("an answer without predictions")
