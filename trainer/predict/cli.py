"""`python -m trainer predict`: labels of very many images in a table."""

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from trainer.command_line import command_parser, run_command
from trainer.errors import ConfigError, DataError
from trainer.predict.job import Model, Wanted, cut, job_of
from trainer.predict.processes import pinned_processes
from trainer.predict.progress import PredictProgress
from trainer.predict.run import Workers, classify_parts
from trainer.predict.summary import Summary, TableCounts, summary_text
from trainer.predict.table import check_target, count, is_written, open_table
from trainer.predict.worker import prepare

__all__ = ["add_predict", "main"]

logger = logging.getLogger(__name__)

_DESCRIPTION = """\
Classify images on all cores and write a table of their labels: a folder of Parquet files, one for
some hundred images each, that pyarrow, pandas, Polars, DuckDB and Spark read as one table. Files
that cannot be read have a row with the reason, and are counted at the end.
"""

_EXAMPLES = """examples:
  python -m trainer predict models/photos/1 photos --out labels.parquet
  python -m trainer predict models/photos/1 list.txt --out labels.parquet --top-k 5 --resume
  find /photos -name '*.jpg' | python -m trainer predict models/photos/1 - --out labels.parquet
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `predict`, as `trainer.cli.main` does, which has all commands."""
    parser, commands = command_parser()
    add_predict(commands)
    return run_command(parser, arguments)


def add_predict(commands: Any) -> None:
    """Add the command `predict`."""
    parser = commands.add_parser(
        "predict",
        help="classify very many images into a table",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, help="version folder, such as models/photos/1")
    parser.add_argument(
        "images",
        type=Path,
        help="folder of images, however deep, or a list of them: a path a line, CSV with a column "
        "path, or JSON lines; - for standard input",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="gets the files of the table"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on where the same command was interrupted"
    )
    parser.add_argument(
        "--top-k", type=_positive, default=1, metavar="K", help="labels an image [1]"
    )
    parser.add_argument(
        "--pooled-vectors", action="store_true", help="with a column of pooled vectors"
    )
    parser.add_argument(
        "--codes", action="store_true", help="with the sparse codes that labels come from"
    )
    parser.add_argument(
        "--processes", type=_positive, metavar="N", help="processes [one for each core]"
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="Dask scheduler whose workers classify, such as tcp://10.0.0.1:8786, or local; they "
        "find bundle, images and table under the same paths [processes of this machine]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_predict)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _predict(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    check_target(options.out, resume=options.resume)
    try:
        with _workers(options) as workers:
            summary = _classify(options, workers, started)
    except KeyboardInterrupt:
        print("interrupted; the same command with --resume goes on", file=sys.stderr)
        raise SystemExit(130) from None
    print(json.dumps(summary.to_json()) if options.json else summary_text(summary))
    if summary.counts.unreadable == summary.counts.images:
        raise DataError(f"not one of the {summary.counts.images} images can be read")


def _workers(options: argparse.Namespace) -> AbstractContextManager[Workers]:
    if options.cluster is None:
        # They load the engine while the images are listed.
        return pinned_processes(options.processes, partial(prepare, options.bundle.absolute()))
    if options.processes is not None:
        raise ConfigError("--processes is for this machine, a cluster has the workers that it has")
    from trainer.predict.cluster import cluster_workers  # noqa: PLC0415

    return cluster_workers(options.cluster)


def _classify(options: argparse.Namespace, workers: Workers, started: float) -> Summary:
    # These take a tenth of a second to import, while the engine is being loaded elsewhere.
    from service.engine.bundle import read_manifest  # noqa: PLC0415
    from trainer.predict.image_list import list_images  # noqa: PLC0415

    model = Model.of(options.bundle, read_manifest(options.bundle))
    images = list_images(options.images)
    wanted = Wanted(options.top_k, options.pooled_vectors, options.codes)
    job = job_of(model, images.folder, images.names, options.out, wanted)
    open_table(job)
    parts = list(cut(images.names, wanted))
    written = {part.number: part for part in parts if is_written(job, part)}
    left = [part for part in parts if part.number not in written]
    counts = count(job, written.values()) if written else TableCounts()
    if written:
        logger.info("%d of %d images are in the table already", counts.images, len(images.names))
    with PredictProgress(len(images.names), counts.images) as progress:
        found = classify_parts(job, left, workers, progress)
    counts.add(found)
    return Summary(job, counts, found.images, time.perf_counter() - started)
