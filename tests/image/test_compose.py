"""The service and its load test in containers as compose.yaml describes them, without compose."""

from tests.image.compose_options import SERVICES, options_of
from tests.image.containers import SERVICE, Container, run_once


def test_the_load_test_measures_the_service_from_the_same_image() -> None:
    command, _, *options = SERVICES["loadtest"]["command"]
    with Container(*options_of("leafcode")) as server:
        ended = run_once(
            SERVICE,
            *(command, server.url, *options, "--requests", "50", "--max-errors", "0"),
            options=options_of("loadtest"),
        )
    assert ended.stdout.startswith("50 requests in ")
    assert "\n0 errors\n" in ended.stdout
