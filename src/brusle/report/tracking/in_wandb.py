"""Runs in Weights & Biases: in a folder, from which `wandb sync` can send them; or sent at once."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brusle.environment import environment
from brusle.errors import InputError
from brusle.names import Name
from brusle.packages import need
from brusle.report.tracking.entries import Entries
from brusle.report.tracking.logged import Logged

QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
_PROJECT, _FOLDER = "brusle", "."
_WRITTEN = "brusle-logged"  # a file that says: the run beside it was written to its end
_PRIVATE = ("config", "cache", "data", "artifact")  # folders that wandb would make at home


def _wandb() -> Any:
    return need("wandb", "--log wandb", InputError)


def opened(name: Name) -> InWandb:
    """What is named; the package is imported now."""
    _wandb()
    mode = name.take_choice("mode", ("offline", "online"), "offline")
    folder = Path(name.take("dir", _FOLDER) or _FOLDER).absolute()
    entity = name.take("entity")
    return InWandb(name.rest or _PROJECT, entity, mode == "online", folder)


@dataclass(frozen=True)
class InWandb:
    """A project.

    Attributes:
        project: its name.
        entity: whose it is; None is the user's own.
        online: send runs at once.
        folder: where they are written; wandb puts a folder ``wandb`` there.
    """

    project: str
    entity: str | None
    online: bool
    folder: Path

    def write(self, entries: Entries) -> Logged:
        """Write ``entries`` as a run of its own, unless the folder has it.

        The same rows have the same id, so that nothing is doubled where they are sent. All that is
        ever logged of one run is one group.
        """
        called = hashlib.sha256(f"{entries.run} {entries.version}".encode()).hexdigest()[:16]
        where = f"{self.folder / 'wandb'}, project {self.project}"
        if not self.online and any((self.folder / "wandb").glob(f"*-{called}/{_WRITTEN}")):
            return Logged("wandb", where, called, new=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        with environment(self._homes()):
            place = self._write_new(entries, called)
        (place / _WRITTEN).touch()
        remark = f"without examples: {entries.missing}" if entries.missing else ""
        if not self.online:
            remark = f"{remark}; " * bool(remark) + f"send it with wandb sync {place}"
        return Logged("wandb", where, called, True, remark=remark)

    def _homes(self) -> dict[str, str]:
        """Where wandb keeps what it would keep at home, unless the user has said where."""
        homes = {f"WANDB_{kind.upper()}_DIR": kind for kind in _PRIVATE}
        beside = self.folder / "wandb"
        return {name: os.environ.get(name, str(beside / kind)) for name, kind in homes.items()}

    def _write_new(self, entries: Entries, called: str) -> Path:
        wandb = _wandb()
        others = wandb.run is not None  # of the user, in this process
        run = wandb.init(
            project=self.project,
            entity=self.entity,
            id=called,
            name=entries.name,
            group=entries.run,
            dir=self.folder,
            mode="online" if self.online else "offline",
            reinit="create_new",
            config={**entries.parameters, "finished": entries.finished},
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                host="brusle",  # or it would be the machine's
                quiet=True,
                save_code=False,
                silent=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        try:
            _fill(run, entries)
        except BaseException:
            run.finish(exit_code=1)
            raise
        run.finish(exit_code=0 if entries.finished else 1)
        if not others:
            wandb.teardown()
        return Path(run.settings.sync_dir)


def _fill(run: Any, entries: Entries) -> None:
    wandb = _wandb()
    for key, points in entries.series.items():
        axis = "pixels" if "_by_pixels" in key else "queries"
        run.define_metric(axis, hidden=True)
        run.define_metric(key, step_metric=axis)
        for step, value in points:
            run.log({axis: step, key: value})
    run.log({name: wandb.Image(str(path)) for name, path in entries.pictures.items()})
    run.summary.update(entries.scalars)
    for name, path in entries.files.items():
        shutil.copyfile(path, Path(run.dir) / name)  # what lies there belongs to the run
        run.save(str(Path(run.dir) / name), base_path=run.dir, policy="now")
