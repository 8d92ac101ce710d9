"""`python -m service.front_ends.front_end PLAN`: the process of one of several front ends."""

import asyncio
import gc
import json
import signal
import socket
import sys

from service.front_ends.plan import FrontEndPlan
from service.observability.logs import log_config, start_logging
from service.pool.fork_server import SERVICE_SIGNALS
from service.pool.fork_server_process import ForkServerProcess

__all__ = ["main"]


def main(plan: FrontEndPlan) -> None:
    """Serve until the parent says otherwise, or is gone."""
    for number in SERVICE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SERVICE_SIGNALS)  # blocked by who started it
    settings = plan.service_settings
    start_logging(settings.log_level, settings.log_format, queued=True)
    gc.disable()  # until it is ready
    logs = log_config(settings.log_level, settings.log_format)
    with ForkServerProcess(settings.threads, logs, plan.worker) as fork_server:
        # Here, because the web framework takes as long as the fork server does for the kernels.
        from uvicorn.loops.auto import auto_loop_factory  # noqa: PLC0415

        from service.front_ends.server import serve_share  # noqa: PLC0415

        with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            runner.run(serve_share(plan, socket.socket(fileno=plan.control), fork_server))


if __name__ == "__main__":
    main(FrontEndPlan(**json.loads(sys.argv[1])))
