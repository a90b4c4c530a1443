"""Victims in ONNX Runtime: the user's files, and torch models exported to run quicker on a CPU."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from brusle.data.images import Framing, Shape
from brusle.errors import InputError, VictimError, first_line
from brusle.names import Name, hint
from brusle.normalisation import normalise
from brusle.packages import need
from brusle.scores import Output
from brusle.victims.batches import in_fixed_batches
from brusle.victims.fingerprints import digest
from brusle.victims.options import (
    Normalisation,
    take_class_names,
    take_normalisation,
    take_output,
    take_size,
    whole_framing,
)
from brusle.victims.weights import what_is
from brusle.victims.wrappers import TorchVictim, _check_kind, _check_output

Layout = Literal["nchw", "nhwc"]
_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(double)": torch.float64,
    "tensor(uint8)": torch.uint8,
}
_CHANNELS = (1, 3, 4)
_OPSET = 18


@dataclass
class OnnxVictim:
    """An ONNX file that takes a batch of images and returns ``output``.

    Input name, size, number type and batch size are read from the file. Images in [0, 1] are
    multiplied by ``scale``, then normalised; a file that takes 8-bit numbers gets levels.

    Attributes:
        path: the file.
        output: what it returns, ``"logits"`` or ``"probabilities"``.
        device: CUDA is used if the installed ONNX Runtime can; else this becomes the CPU.
        name: for messages and reports.
        classes: names of the classes, if known.
        shape: (channels, height, width) of its images; None reads it from the file.
        framing: how photographs of another size are brought to that shape.
        layout: where the channels are; None tells by the file's input.
        normalisation: mean and std per channel that the file wants; None is none.
        scale: 255 for files that take levels as floats.
        scores: the output to take, by name; None is the first.
        threads: within one operation; None is as many as torch uses.
        fingerprint: a hash of the weights; empty is that of the file.
    """

    path: str | Path
    output: Output = "logits"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    name: str = "onnx"
    classes: Sequence[str] | None = None
    shape: Shape | None = None
    framing: Framing | None = None
    layout: Layout | None = None
    normalisation: Normalisation | None = None
    scale: float = 1.0
    scores: str | None = None
    threads: int | None = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        _check_output(self.output)
        self._session = self._open()
        self.fingerprint = self.fingerprint or _file_digest(Path(self.path))
        inputs = self._session.get_inputs()
        sides = [_known(side) for side in inputs[0].shape] if len(inputs) == 1 else []
        if len(sides) != 4 or inputs[0].type not in _DTYPES:
            got = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
            raise VictimError(
                f"{self.path} does not take one batch of images (n, c, h, w), but {got}"
            )
        self._input, self._dtype = inputs[0].name, _DTYPES[inputs[0].type]
        if self.takes_levels and (self.normalisation or self.scale != 1):
            raise InputError(f"{self.path} takes 8-bit levels: leave mean, std and scale out")
        outputs = [output.name for output in self._session.get_outputs()]
        if self.scores is not None and self.scores not in outputs:
            raise InputError(
                f"{self.path} has no output {self.scores!r}{hint(self.scores, outputs)}"
            )
        self._output = self.scores or outputs[0]
        self._batch = sides[0]
        if self.layout is None:
            last = sides[3] in _CHANNELS and sides[1] not in _CHANNELS
            self.layout = "nhwc" if last else "nchw"
        self._set_shape([sides[at] for at in ((3, 1, 2) if self.layout == "nhwc" else (1, 2, 3))])
        if self.framing is None and self.shape is not None:
            self.framing = whole_framing(self.shape[1:])

    @property
    def takes_levels(self) -> bool:
        """Whether the file takes 8-bit numbers, so that there is nothing to normalise."""
        return self._dtype == torch.uint8

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images."""
        if self.shape is not None and tuple(images.shape[1:]) != self.shape:
            got, want = (" x ".join(map(str, s)) for s in (images.shape[1:], self.shape))
            raise InputError(f"{self.name} takes images of {want}, not {got}")
        prepared = self._prepare(images.to("cpu", torch.float32))
        if self._batch is None:
            scores = self._run(prepared)
        else:
            scores = in_fixed_batches(self._run, prepared, self._batch)
        return _check_kind(scores.to(self.device), self.output, self.name)

    def _open(self) -> Any:
        runtime = need("onnxruntime", self.name)
        if what_is(str(self.path)) != "other":
            raise VictimError(f"{self.path} is no ONNX file: give one that ends in .onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self.threads or torch.get_num_threads()
        options.log_severity_level = 4  # errors are raised anyway
        providers = ["CPUExecutionProvider"]
        if self.device.type == "cuda" and "CUDAExecutionProvider" in (
            runtime.get_available_providers()
        ):
            providers.insert(0, "CUDAExecutionProvider")
        else:
            self.device = torch.device("cpu")
        try:
            return runtime.InferenceSession(str(self.path), options, providers=providers)
        except Exception as error:  # its errors have no base of their own
            raise VictimError(
                f"{self.path} cannot be loaded as ONNX ({first_line(error)[:120]})"
            ) from error

    def _set_shape(self, sides: list[int | None]) -> None:
        """Compare the shape that was asked for with the file's, or take the file's."""
        if self.shape is None:
            channels, height, width = sides
            if height is not None and width is not None:
                self.shape = (channels or 3, height, width)
        elif any(own not in (None, asked) for own, asked in zip(sides, self.shape, strict=True)):
            raise InputError(f"{self.path} takes images of {sides}, not of {list(self.shape)}")

    def _prepare(self, images: Tensor) -> Tensor:
        """Images as the file wants them."""
        if self.takes_levels:
            images = (images * 255).round()
        elif self.scale != 1:
            images = images * self.scale
        if self.normalisation is not None:
            mean, std = (
                torch.tensor(values).view(1, -1, 1, 1)
                for values in (self.normalisation.mean, self.normalisation.std)
            )
            images = normalise(images, mean, std)
        if self.layout == "nhwc":
            images = images.permute(0, 2, 3, 1)
        return images.to(self._dtype).contiguous()

    def _run(self, prepared: Tensor) -> Tensor:
        scores = self._session.run([self._output], {self._input: prepared.numpy()})[0]
        return torch.from_numpy(scores).float()


def from_file(name: Name, device: torch.device) -> OnnxVictim:
    """The victim called ``onnx:FILE?...``."""
    output, classes, size = take_output(name), take_class_names(name), take_size(name)
    layout = name.take_choice("layout", ("auto", "nchw", "nhwc"), "auto")
    normalisation = take_normalisation(name, None)
    scale, threads = name.take_numbers("scale"), name.take_numbers("threads")
    scores = name.take("scores")
    name.done()
    if threads is not None and (threads[0] < 1 or threads[0] != int(threads[0])):
        raise InputError(f"threads in {name.text!r} must be a whole number above 0")
    channels = len(normalisation.mean) if normalisation else 3
    return OnnxVictim(
        name.rest,
        output=output,
        device=device,
        name=name.text,
        classes=classes,
        shape=(channels, *size) if size else None,
        layout={"nchw": "nchw", "nhwc": "nhwc"}.get(layout),  # type: ignore[arg-type]
        normalisation=normalisation,
        scale=scale[0] if scale else 1.0,
        scores=scores,
        threads=int(threads[0]) if threads else None,
    )


def export_onnx(
    victim: TorchVictim,
    path: str | Path,
    shape: Shape | None = None,
    batch: int | None = None,
) -> Path:
    """Write a torch model, normalisation included, as an ONNX file that gives the same answers.

    The older of torch's two exporters is tried first: it needs a tenth of the time and no further
    package. Where it fails or takes something for a constant that is none, such as the number of
    images, the newer one (which needs onnxscript) takes over.

    Args:
        victim: the model.
        path: where the file goes.
        shape: (channels, height, width) of its images, if the victim does not know.
        batch: the only batch size that the file shall take; None takes any.
    """
    need("onnxruntime", victim.name)
    shape = shape or victim.shape
    if shape is None:
        raise InputError(f"{victim.name} does not say how large its images are: give shape=")
    reasons = []
    for newer in (False, True):
        try:
            _export(victim, Path(path), shape, batch, newer)
            _compare(victim, OnnxVictim(path, output=victim.output), shape)
        except Exception as error:
            reasons.append(first_line(error)[:100])
        else:
            return Path(path)
    raise VictimError(f"{victim.name} cannot be exported to ONNX ({'; then '.join(reasons)})")


def in_onnx_runtime(victim: TorchVictim, device: torch.device) -> OnnxVictim:
    """The same model in ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        return OnnxVictim(
            export_onnx(victim, Path(folder) / "model.onnx"),
            output=victim.output,
            device=device,
            name=victim.name,
            classes=victim.classes,
            shape=victim.shape,
            framing=victim.framing,
            fingerprint=digest(victim.module),  # two exports may differ in what is no weight
        )


def _compare(victim: TorchVictim, exported: OnnxVictim, shape: Shape) -> None:
    """Raise unless both answer alike, for a batch of another size than it was exported with."""
    images = _noise(3, shape)
    expected, got = victim(images).cpu().float(), exported(images)
    if not torch.allclose(got, expected, rtol=1e-3, atol=1e-3):
        worst = float((got - expected).abs().max())
        raise VictimError(f"scores differ by up to {worst:.2g} from torch's")


def _export(victim: TorchVictim, path: Path, shape: Shape, batch: int | None, newer: bool) -> None:
    # tracing may take a batch of 1 for a constant, so the example has more
    example = _noise(batch or 2, shape).to(victim.device, victim.dtype)
    options: dict[str, Any] = {}
    if newer:
        options |= {"verbose": False, "external_data": False}
        if batch is None:
            options["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    elif batch is None:
        options["dynamic_axes"] = {"images": {0: "batch"}, "scores": {0: "batch"}}
    with warnings.catch_warnings(), victim.borrowed() as module:
        warnings.simplefilter("ignore")  # the older exporter announces its end at every call
        torch.onnx.export(
            module,
            (example,),
            str(path),
            dynamo=newer,
            opset_version=_OPSET,
            input_names=["images"],
            output_names=["scores"],
            **options,
        )


def _file_digest(path: Path) -> str:
    """A hash of an ONNX file and of the file beside it that exporters put large weights into."""
    whole = hashlib.sha256()
    for file in (path, path.with_name(f"{path.name}.data")):
        if file.exists():
            whole.update(file.read_bytes())
    return whole.hexdigest()[:16]


def _noise(count: int, shape: Shape) -> Tensor:
    """Images that are the same every time, and leave the caller's random numbers alone."""
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))


def _known(side: object) -> int | None:
    """A side of a shape, unless it is free: those have a name, or none."""
    return side if isinstance(side, int) and side > 0 else None
