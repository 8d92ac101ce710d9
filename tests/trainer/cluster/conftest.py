"""A cluster in this process, for what does not depend on processes."""

from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client

from trainer.cluster.tasks import Tasks


@pytest.fixture(scope="package")
def threads() -> Iterator[Any]:
    """A client of a scheduler and two workers in threads of this process."""
    with Client(
        processes=False,
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        set_as_default=False,
    ) as client:
        yield client


@pytest.fixture(scope="package")
def tasks(threads: Any) -> Tasks:
    """What is submitted to these workers."""
    return Tasks(threads)
