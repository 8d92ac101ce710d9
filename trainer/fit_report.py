"""The report that ends a fit, whose bundle is published by then and outlasts whatever happens."""

import logging
from pathlib import Path

from service.engine import Engine, Manifest
from trainer.data.dataset import Dataset
from trainer.errors import ConfigError
from trainer.fit import TrainedModel
from trainer.page.document import REPORT_FILE, write_report
from trainer.page.findings import of_fit
from trainer.repeat import RepeatCommand

__all__ = ["report_fit"]

logger = logging.getLogger(__name__)


def report_fit(
    trained: TrainedModel,
    dataset: Dataset,
    folder: Path,
    manifest: Manifest,
    command: RepeatCommand,
) -> Path | None:
    """Write the report of a model into its version folder; None, with a sentence, if that fails."""
    path, engine = folder / REPORT_FILE, Engine(trained.bundle)
    try:
        findings = of_fit(engine, dataset, trained.judged)
        write_report(path, engine, manifest, findings, command)
    except KeyboardInterrupt:
        logger.warning("interrupted: %s is complete, but has no report", folder)
    except ConfigError as error:
        logger.warning("%s is complete, but has no report: %s", folder, error)
    else:
        return path
    return None
