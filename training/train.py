"""The recipes that trained the bundled nets: ``python training/train.py NAME`` trains one again.

Plain nets: cross-entropy, random flips and 4-pixel shifts, one linear warm-up and one linear decay
of the learning rate (SGD with Nesterov momentum for the residual nets, AdamW for the transformer).
The first epochs of the residual net run on images shrunk to 24 x 24 (half the arithmetic): a net
with global pooling does not mind, and on two CPU cores it saves a fifth of the time.

Robust nets learn on perturbed images only (`adversaries`). The first starts from the
plain residual net, each of the others from a net that is robust in another norm: that takes two or
three epochs instead of many (Croce and Hein, "Adversarial Robustness against Multiple and Single
l_p-Threat Models via Quick Fine-Tuning of Robust Classifiers", ICML 2022).

The state is saved after every epoch (weights, optimiser, epoch number, time; the random numbers
of an epoch are a function of seed and epoch), so the same command continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from adversaries import Threat, pgd, training_example
from rich.progress import track
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from brusle import zoo
from brusle.data import cifar10, load
from brusle.data.stored import cache_dir
from brusle.errors import BrusleError
from brusle.files import write_text, written


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, besides the data."""

    architecture: Literal["resnet20", "vit"] = "resnet20"
    start: str | None = None  # a zoo model to start from
    epochs: int = 36
    small_epochs: int = 16  # so many first epochs at `small_size`
    small_size: int = 24
    batch: int = 128
    optimiser: Literal["sgd", "adamw"] = "sgd"
    peak_lr: float = 0.2
    warmup: float = 0.2  # share of all steps
    momentum: float = 0.9
    weight_decay: float = 5e-4
    shift: int = 4  # pixels, reflected at the border
    threat: Threat | None = None
    radius: float = 0.0
    steps: int = 1
    seed: int = 0

    def learning_rate(self, progress: float) -> float:
        """The rate after the share ``progress`` of all steps."""
        if progress < self.warmup:
            return self.peak_lr * progress / self.warmup
        return self.peak_lr * (1 - progress) / (1 - self.warmup)


_LINF = "cifar10-resnet20-linf"
_TUNED = Recipe(start=_LINF, epochs=3, small_epochs=1, peak_lr=0.05, warmup=0.1)
RECIPES = {
    "cifar10-resnet20": Recipe(),
    "cifar10-vit": Recipe(
        architecture="vit",
        epochs=36,
        small_epochs=29,
        optimiser="adamw",
        peak_lr=2e-3,
        weight_decay=0.05,
    ),
    _LINF: Recipe(
        start="cifar10-resnet20",
        epochs=8,
        small_epochs=5,
        peak_lr=0.1,
        warmup=0.1,
        threat="linf",
        radius=8 / 255,
    ),
    "cifar10-resnet20-l2": replace(_TUNED, threat="l2", radius=0.5),
    "cifar10-resnet20-l1": replace(
        _TUNED, start="cifar10-resnet20-l2", epochs=2, threat="l1", radius=12.0, steps=2
    ),
    "cifar10-resnet20-l0": replace(
        _TUNED,
        start="cifar10-resnet20-l1",
        epochs=1,
        small_epochs=0,
        peak_lr=0.03,
        threat="l0",
        radius=24,
        steps=3,
    ),
}

_TITLES = {"resnet20": "ResNet-20", "vit": "small vision transformer"}


def augment(images: Tensor, shift: int, generator: torch.Generator) -> Tensor:
    """Flip and shift every image of a float batch on its own."""
    n, c, h, w = images.shape
    padded = F.pad(images, (shift,) * 4, mode="reflect")
    dy = torch.randint(0, 2 * shift + 1, (n,), generator=generator)
    dx = torch.randint(0, 2 * shift + 1, (n,), generator=generator)
    flip = torch.rand(n, generator=generator) < 0.5
    rows = dy[:, None] + torch.arange(h)
    columns = dx[:, None] + torch.where(flip[:, None], torch.arange(w - 1, -1, -1), torch.arange(w))
    return padded[
        torch.arange(n)[:, None, None, None],
        torch.arange(c)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch: int = 500) -> float:
    """Share of uint8 ``images`` that ``model`` classifies as ``labels``."""
    was_training = model.training
    model.eval()
    right = 0
    for x, y in zip(torch.split(images, batch), torch.split(labels, batch), strict=True):
        x = (x.float() / 255).contiguous(memory_format=torch.channels_last)
        right += int((model(x).argmax(1) == y).sum())
    model.train(was_training)
    return right / len(labels)


def robust_accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe, steps: int, batch: int = 250
) -> float:
    """Share of uint8 ``images`` that PGD of the recipe's own threat cannot turn."""
    assert recipe.threat is not None
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(recipe.seed)
    right = 0
    for x, y in zip(torch.split(images, batch), torch.split(labels, batch), strict=True):
        x = (x.float() / 255).contiguous(memory_format=torch.channels_last)
        worst = pgd(model, x, y, recipe.threat, recipe.radius, steps, generator)
        with torch.no_grad():
            right += int((model(worst).argmax(1) == y).sum())
    model.train(was_training)
    return right / len(labels)


class Trainer:
    """One training run of a recipe in a folder; see the top of this file."""

    def __init__(self, name: str, recipe: Recipe, data: Path, out: Path, compiled: bool) -> None:
        self.name, self.recipe, self.out, self.compiled = name, recipe, out, compiled
        self.train_x, self.train_y = (torch.from_numpy(a) for a in cifar10.read(data, "train"))
        self.test_x, self.test_y = (torch.from_numpy(a) for a in cifar10.read(data, "test"))
        out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(recipe.seed)
        model = self._start()
        self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forward = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.optimiser = self._optimiser()
        self.steps = len(self.train_x) // recipe.batch
        self.epoch, self.seconds = 0, 0.0
        self.state_file = out / f"{name}.training.safetensors"
        if self.state_file.exists():
            self._resume()

    def _start(self) -> nn.Module:
        """New weights, or those of the recipe's start: trained in this folder, or bundled."""
        if self.recipe.start is None:
            return zoo.build(self.recipe.architecture)
        model, own = (
            zoo.build(self.recipe.architecture),
            self.out / f"{self.recipe.start}.safetensors",
        )
        if not own.exists():
            return zoo.load(self.recipe.start)
        model.load_state_dict(load_file(own))
        return model

    def run(self) -> dict[str, Any]:
        """Train to the end, write weights and card, return the card."""
        while self.epoch < self.recipe.epochs:
            began = time.monotonic()
            loss = self._one_epoch()
            self.epoch += 1
            seconds = time.monotonic() - began
            self.seconds += seconds
            self._save()
            left = seconds * (self.recipe.epochs - self.epoch) / 60
            note = f"{self.name}: epoch {self.epoch}/{self.recipe.epochs} loss {loss:.3f}"
            print(f"{note} {seconds:.0f} s (about {math.ceil(left)} min left)", flush=True)
        weights = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}
        with written(self.out / f"{self.name}.safetensors") as file:
            save_file(weights, file)
        card = self._card()
        write_text(self.out / f"{self.name}.json", json.dumps(card, indent=2) + "\n")
        print(card["summary"], flush=True)
        return card

    def _one_epoch(self) -> float:
        recipe, total = self.recipe, 0.0
        generator = torch.Generator().manual_seed(recipe.seed * 100_003 + self.epoch)
        order = torch.randperm(len(self.train_x), generator=generator)
        self.model.train()
        title = f"epoch {self.epoch + 1}/{recipe.epochs}"
        steps = track(range(self.steps), title, transient=True, disable=not sys.stderr.isatty())
        for step in steps:
            index = order[step * recipe.batch : (step + 1) * recipe.batch]
            x, y = self._batch(index, generator), self.train_y[index]
            progress = (self.epoch * self.steps + step) / (recipe.epochs * self.steps)
            for group in self.optimiser.param_groups:
                group["lr"] = recipe.learning_rate(progress)
            logits = self.forward(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, y)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            if recipe.architecture == "vit":
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
            total += loss.item()
        return total / self.steps

    def _batch(self, index: Tensor, generator: torch.Generator) -> Tensor:
        recipe = self.recipe
        x = augment(self.train_x[index].float() / 255, recipe.shift, generator)
        if self.epoch < recipe.small_epochs:
            size = (recipe.small_size, recipe.small_size)
            x = F.interpolate(x, size, mode="bilinear", antialias=True)
        if recipe.threat is not None:
            y = self.train_y[index]
            settings = (recipe.threat, recipe.radius, recipe.steps, generator)
            x = x.contiguous(memory_format=torch.channels_last)
            self.model.requires_grad_(False)  # the perturbation needs no gradient of the weights
            x = training_example(self.forward, x, y, *settings)  # type: ignore[arg-type]
            self.model.requires_grad_(True)
        return x

    def _optimiser(self) -> torch.optim.Optimizer:
        recipe, parameters = self.recipe, self.model.parameters()
        if recipe.optimiser == "adamw":
            return torch.optim.AdamW(parameters, recipe.peak_lr, weight_decay=recipe.weight_decay)
        return torch.optim.SGD(
            parameters,
            recipe.peak_lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=True,
        )

    def _save(self) -> None:
        """Weights and optimiser in one file, replaced at once."""
        state = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, parameter in enumerate(self.model.parameters()):
            for key, value in self.optimiser.state[parameter].items():
                state[f"optimiser.{i}.{key}"] = torch.as_tensor(value)
        state |= {"epoch": torch.tensor(self.epoch), "seconds": torch.tensor(self.seconds)}
        with written(self.state_file) as file:
            save_file({k: v.contiguous() for k, v in state.items()}, file)

    def _resume(self) -> None:
        state = load_file(self.state_file)
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])
        prefix = "model."
        weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        self.model.load_state_dict(weights)
        parameters = list(self.model.parameters())
        for name, value in state.items():
            if name.startswith("optimiser."):
                _, i, key = name.split(".")
                self.optimiser.state[parameters[int(i)]][key] = value
        print(f"{self.name}: continuing after epoch {self.epoch}", flush=True)

    def _card(self) -> dict[str, Any]:
        """What a reader needs to know of the weights, and to repeat them."""
        recipe, sample = self.recipe, load("sample")
        clean = accuracy(self.model, self.test_x, self.test_y)
        right = accuracy(self.model, (sample.images * 255).round().byte(), sample.labels)
        robust: dict[str, Any] = {}
        if recipe.threat is not None:
            images, steps = 1000, 50
            share = robust_accuracy(
                self.model, self.test_x[:images], self.test_y[:images], recipe, steps
            )
            robust = {
                "threat": recipe.threat,
                "radius": recipe.radius,
                "robust_accuracy": share,
                "robust_accuracy_of": f"PGD, {steps} steps, one start, first {images} test images",
            }
        trained = "" if recipe.threat is None else f" against {recipe.threat} perturbations"
        flag = " --compile" if self.compiled else ""
        return {
            "name": self.name,
            "summary": f"{_TITLES[recipe.architecture]} trained on CIFAR-10{trained}, "
            f"{100 * clean:.1f} % "
            f"test accuracy"
            + (f", {100 * robust['robust_accuracy']:.1f} % under PGD" if robust else ""),
            "architecture": recipe.architecture,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "classes": list(cifar10.CLASSES),
            "shape": [3, 32, 32],
            "input": "RGB in [0, 1]; normalisation is part of the net",
            "output": "logits",
            "data": "CIFAR-10 (Krizhevsky 2009): 50 000 training images, whole training set",
            "recipe": asdict(recipe),
            "seed": recipe.seed,
            "training_minutes": round(self.seconds / 60),
            "trained_on": f"CPU, {torch.get_num_threads()} threads, torch {torch.__version__}",
            "test_accuracy": clean,
            "test_images": "CIFAR-10 test set, all 10 000 images, not used for any choice",
            **robust,
            "sample_correct": round(right * len(sample)),
            "repeat": f"brusle data fetch cifar10 && python training/train.py {self.name}{flag}",
            "repeat_note": "same seed and machine give the same weights; another machine or "
            "torch rounds differently and ends within a few tenths of a percent",
            "licence": "weights: as the project; CIFAR-10 images: see its authors' page",
        }


def main() -> None:
    """Command line of the recipes."""
    parser = argparse.ArgumentParser(description="Train a bundled CIFAR-10 net again.")
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument(
        "--data",
        type=Path,
        default=cache_dir() / "cifar10",
        help="folder with CIFAR-10; where `brusle data fetch cifar10` puts it if not given",
    )
    parser.add_argument("--out", type=Path, default=Path("trained"), help="where to write")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="faster, needs a C++ compiler")
    args = parser.parse_args()
    recipe = replace(RECIPES[args.name], seed=args.seed)
    if args.epochs is not None:
        recipe = replace(recipe, epochs=args.epochs)
    try:
        Trainer(args.name, recipe, args.data, args.out, args.compile).run()
    except BrusleError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
