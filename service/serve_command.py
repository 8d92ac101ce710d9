"""`python -m service serve`: settings, log, fork server and the service, until it is stopped."""

import argparse
import gc
import logging
import signal

from service import __version__
from service.engine import LeafcodeError
from service.engine.cpu_level import require_cpu_level
from service.errors import SettingsError
from service.front_ends.plan import front_end_count
from service.model_choice import with_models
from service.observability.logs import log_config, start_logging
from service.pool.fork_server_process import WORKER, ForkServerProcess
from service.setting_flags import FLAGS, add_setting, tell_environment_only
from service.settings import Settings, load_settings

__all__ = ["add_serve"]

logger = logging.getLogger(__name__)


def add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `serve`."""
    parser = commands.add_parser(
        "serve",
        help="answer over HTTP",
        description="Answer over HTTP until interrupted. Flags come before the environment.",
        epilog=tell_environment_only(),
    )
    for name in FLAGS:
        add_setting(parser, name)
    parser.set_defaults(command=_serve, worker=WORKER)


def _serve(options: argparse.Namespace) -> int:
    settings = load_settings(**{name: getattr(options, name) for name in FLAGS})
    start_logging(settings.log_level, settings.log_format, queued=True)
    gc.disable()  # as in `__main__`, until the service is ready
    # Not before there is something to reload; processes started meanwhile inherit it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logger.info("leafcode %s starts", __version__)
    try:
        require_cpu_level()
        _serve_settings(with_models(settings), options.worker)
    except LeafcodeError as error:
        # A line of the log like any other: whoever collects it must see why nothing runs.
        logger.error("cannot serve: %s", error)  # noqa: TRY400
        return 2 if isinstance(error, SettingsError) else 1
    return 0


def _serve_settings(settings: Settings, worker: str) -> None:
    if front_end_count(settings) > 1:
        from service.front_ends.parent import serve_with_front_ends  # noqa: PLC0415

        serve_with_front_ends(settings, worker)
        return
    logs = log_config(settings.log_level, settings.log_format)
    with ForkServerProcess(settings.threads, logs, worker) as fork_server:
        # Here, because the web framework takes half a second, and the fork server as long for
        # the kernels: with two cores both happen at the same time.
        from service.server import serve  # noqa: PLC0415

        serve(settings, fork_server)
