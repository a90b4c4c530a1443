"""Runs in TensorBoard: a file of events for each, in a folder for `tensorboard --logdir`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from brusle.errors import InputError
from brusle.files import file_name, written
from brusle.names import Name
from brusle.packages import need
from brusle.report.markdown import plain
from brusle.report.tracking.entries import Entries
from brusle.report.tracking.logged import Logged

_FOLDER = "tensorboard"
_VERSION = "brusle.version"  # the file has it behind this word, to be found without reading all
_FORMAT = "brain.Event:2"  # what readers want to see first


def _part(module: str) -> Any:
    return need(f"tensorboard.{module}", "--log tensorboard", InputError)


def opened(name: Name) -> InTensorboard:
    """What is named; the package is imported now."""
    _part("summary")
    if "://" in name.rest:
        raise InputError(f"{name.text!r}: TensorBoard's events are written to a folder: name one")
    return InTensorboard(Path(name.rest or _FOLDER))


@dataclass(frozen=True)
class InTensorboard:
    """A folder for the events of many runs."""

    folder: Path

    def write(self, entries: Entries) -> Logged:
        """Write the run's file anew, as a whole; it takes the place of the one from before."""
        there = sorted(self.folder.glob(f"*-{entries.run}"))  # under whatever name it had then
        called = there[0].name if there else f"{file_name(entries.name, 'run')}-{entries.run}"
        place = self.folder / called
        # no name of the machine and no time in it, as TensorBoard itself would write
        path = place / f"events.out.tfevents.{entries.began}.brusle"
        said = f"{self.folder} (tensorboard --logdir {self.folder})"
        if path.exists() and f"{_VERSION}={entries.version}".encode() in path.read_bytes():
            return Logged("tensorboard", said, called, new=False)
        with written(path) as file:
            _write_events(entries, file)
        remark = f"without examples: {entries.missing}" if entries.missing else ""
        return Logged("tensorboard", said, called, new=True, remark=remark)


def _write_events(entries: Entries, path: Path) -> None:
    event_of = _part("compat.proto.event_pb2").Event
    with path.open("wb") as file:
        writer = _part("summary.writer.record_writer").RecordWriter(file)
        began = float(entries.began)
        writer.write(event_of(wall_time=began, file_version=_FORMAT).SerializeToString())
        for step, summary in _summaries(entries):
            event = event_of(wall_time=began, step=step, summary=summary)
            writer.write(event.SerializeToString())
        writer.flush()


def _summaries(entries: Entries) -> Iterator[tuple[int, Any]]:
    """What the file holds, each with its step."""
    summary = _part("compat.proto.summary_pb2").Summary
    hparams_pb = _part("plugins.hparams.summary_v2").hparams_pb
    # keys of settings have a group each in the page, and the others one
    shown = {name if "/" in name else f"run/{name}": x for name, x in entries.parameters.items()}
    # without a trial of its own, its number would be drawn
    yield 0, hparams_pb(dict(shown), trial_id=entries.run, start_time_secs=entries.began)
    yield 0, _text("parameters", _table(entries.parameters))
    yield 0, _text("run", f"{_VERSION}={entries.version}")
    for name, path in entries.pictures.items():
        with Image.open(path) as picture:
            width, height = picture.size
        image = summary.Image(
            height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes()
        )
        yield 0, summary(value=[summary.Value(tag=name, image=image)])
    for name, value in entries.metrics.items():
        yield 0, summary(value=[summary.Value(tag=name, simple_value=value)])
    for name, points in entries.series.items():
        for step, value in points:
            yield step, summary(value=[summary.Value(tag=name, simple_value=value)])


def _text(tag: str, text: str) -> Any:
    proto = _part("compat.proto.summary_pb2")
    tensors = _part("compat.proto.tensor_pb2")
    kind = _part("compat.proto.types_pb2").DT_STRING
    plugin = proto.SummaryMetadata.PluginData(plugin_name="text")
    tensor = tensors.TensorProto(dtype=kind, string_val=[text.encode()])
    value = proto.Summary.Value(
        tag=tag, metadata=proto.SummaryMetadata(plugin_data=plugin), tensor=tensor
    )
    return proto.Summary(value=[value])


def _table(parameters: dict[str, str]) -> str:
    """In Markdown, which the page draws."""
    lines = [f"| {plain(name)} | {plain(value)} |" for name, value in parameters.items()]
    return "\n".join(["| parameter | value |", "|---|---|", *lines])
