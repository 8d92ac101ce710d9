"""What goes wrong in a load test, apart from the answers of the service."""

from service.engine import LeafcodeError

__all__ = ["LoadTestError"]


class LoadTestError(LeafcodeError):
    """A load test that cannot be run, or one that the service did not pass."""
