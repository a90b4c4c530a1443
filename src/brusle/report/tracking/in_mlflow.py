"""Runs in MLflow: in a folder of their own (SQLite and files), or on a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from brusle.errors import InputError
from brusle.names import Name
from brusle.packages import need
from brusle.report.tracking.entries import Entries
from brusle.report.tracking.logged import Logged

# a server that is down is not waited for: everything is stored, and can be logged later
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_FOLDER, _FILE, _ARTIFACTS, _EXPERIMENT = "mlflow", "mlflow.db", "artifacts", "brusle"
_SERVERS = ("http://", "https://")
_METRICS, _PARAMETERS = 1000, 100  # most in one call
_RUN, _VERSION = "brusle_run", "brusle_rows"  # tags
_REPLACES, _REPLACED_BY = "brusle_replaces", "brusle_replaced_by"
_NOISY = ("alembic", "mlflow.store.db.utils", "mlflow.tracking.fluent", "mlflow.utils")

Item = TypeVar("Item")


def _mlflow() -> Any:
    return need("mlflow", "--log mlflow", InputError)


def opened(name: Name) -> InMlflow:
    """What is named; the package is imported now."""
    _mlflow()
    experiment = name.take("experiment", _EXPERIMENT) or _EXPERIMENT
    if name.rest.startswith(_SERVERS):
        return InMlflow(name.rest, None, experiment)
    if name.rest == "databricks" or name.rest.startswith("databricks:"):
        return InMlflow(name.rest, None, experiment)
    if "://" in name.rest or name.rest.startswith("file:"):
        raise InputError(
            f"{name.text!r} is no place that brusle logs to: give a folder, or the http address "
            f"of an MLflow server"
        )
    return InMlflow("", Path(name.rest or _FOLDER).absolute(), experiment)


@dataclass(frozen=True)
class InMlflow:
    """One experiment.

    Attributes:
        server: its address; empty of a folder.
        folder: the folder.
        experiment: name of the experiment.
    """

    server: str
    folder: Path | None
    experiment: str

    @property
    def uri(self) -> str:
        """What MLflow calls the place."""
        return f"sqlite:///{self.folder / _FILE}" if self.folder else self.server

    def write(self, entries: Entries) -> Logged:
        """Write ``entries`` as a new run, unless the experiment has them already.

        MLflow keeps all values that a metric ever had, so a run that has changed becomes a new one,
        and each names the other.
        """
        with _quiet():
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            client = _mlflow().MlflowClient(tracking_uri=self.uri)
            experiment = self._experiment(client)
            before = client.search_runs(
                [experiment], f"tags.`{_RUN}` = '{entries.run}'", order_by=["start_time DESC"]
            )
            for old in before:
                if old.data.tags.get(_VERSION) == entries.version:
                    return Logged("mlflow", self._where(), old.info.run_id, new=False)
            replaces = next((old for old in before if _REPLACED_BY not in old.data.tags), None)
            new = self._write_new(client, experiment, entries, replaces)
        old_id = "" if replaces is None else replaces.info.run_id
        return Logged("mlflow", self._where(), new, True, old_id, self._remark(entries))

    def _experiment(self, client: Any) -> str:
        found = client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        place = None if self.folder is None else (self.folder / _ARTIFACTS).as_uri()
        return str(client.create_experiment(self.experiment, artifact_location=place))

    def _write_new(self, client: Any, experiment: str, entries: Entries, replaces: Any) -> str:
        tags = {_RUN: entries.run}
        if replaces is not None:
            tags[_REPLACES] = replaces.info.run_id
        began = 1000 * entries.began
        run = client.create_run(experiment, start_time=began, tags=tags, run_name=entries.name)
        new = str(run.info.run_id)
        try:
            self._fill(client, new, entries)
        except BaseException:
            with suppress(Exception):  # the server may be what has failed
                client.set_terminated(new, "FAILED")
            raise
        # said when all is there: what is without it was not written to its end
        client.set_tag(new, _VERSION, entries.version)
        client.set_terminated(new, "FINISHED" if entries.finished else "KILLED")
        if replaces is not None:
            client.set_tag(replaces.info.run_id, _REPLACED_BY, new)
        return new

    def _fill(self, client: Any, run: str, entries: Entries) -> None:
        entities = _mlflow().entities
        when = 1000 * entries.began
        parameters = [entities.Param(name, value) for name, value in entries.parameters.items()]
        metrics = [entities.Metric(name, value, when, 0) for name, value in entries.metrics.items()]
        for name, points in entries.series.items():
            metrics += [entities.Metric(name, value, when, step) for step, value in points]
        for some in _parts(parameters, _PARAMETERS):
            client.log_batch(run, params=some)
        for part in _parts(metrics, _METRICS):
            client.log_batch(run, metrics=part)
        for path in entries.pictures.values():
            client.log_artifact(run, str(path), "pictures")
        for path in entries.files.values():
            client.log_artifact(run, str(path))

    def _where(self) -> str:
        place = self.server or str(self.folder)
        return f"{place}, experiment {self.experiment}"

    def _remark(self, entries: Entries) -> str:
        if entries.missing:
            return f"without examples: {entries.missing}"
        return f"look at it with mlflow ui --backend-store-uri {self.uri}" if self.folder else ""


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow says what it does to its database; that is nobody's business here."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
