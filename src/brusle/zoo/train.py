"""The recipe that trained the bundled net: ``python -m brusle.zoo.train --data DIR``.

Plain supervised training: SGD with Nesterov momentum, one linear warm-up and one linear decay
of the learning rate, random flips and random 4-pixel shifts, cross-entropy. The first epochs
run on images shrunk to 24 x 24 (half the arithmetic): a residual net with global pooling does
not mind, and on two CPU cores it saves a fifth of the time.

The state is saved after every epoch (weights, momentum and epoch number; the random numbers of
an epoch are a function of seed and epoch), so the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from brusle.data import cifar10, load
from brusle.zoo.resnet import resnet20


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, besides data and architecture."""

    epochs: int = 36
    small_epochs: int = 16  # so many first epochs at `small_size`
    small_size: int = 24
    batch: int = 128
    peak_lr: float = 0.2
    warmup: float = 0.2  # share of all steps
    momentum: float = 0.9
    weight_decay: float = 5e-4
    shift: int = 4  # pixels, reflected at the border
    seed: int = 0

    def learning_rate(self, progress: float) -> float:
        """The rate after the share ``progress`` of all steps."""
        if progress < self.warmup:
            return self.peak_lr * progress / self.warmup
        return self.peak_lr * (1 - progress) / (1 - self.warmup)


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


def train(recipe: Recipe, data: Path, out: Path, compiled: bool = False) -> float:
    """Train, or continue to train, the net in ``out``; return the test accuracy.

    ``compiled`` uses ``torch.compile`` (needs a C++ compiler): about 20 % faster on a CPU.
    """
    train_x, train_y = (torch.from_numpy(a) for a in cifar10.read(data, "train"))
    test_x, test_y = (torch.from_numpy(a) for a in cifar10.read(data, "test"))
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    model = resnet20().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(
        model.parameters(),
        recipe.peak_lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=True,
    )
    forward = torch.compile(model, dynamic=False) if compiled else model
    state_file, first, spent = out / "training.safetensors", 0, 0.0
    momenta = [torch.zeros_like(p) for p in model.parameters()]
    if state_file.exists():
        state = load_file(state_file)
        first, spent = int(state.pop("epoch")), float(state.pop("seconds"))
        momenta = [state.pop(f"momentum.{i}") for i in range(len(momenta))]
        model.load_state_dict(state)
        print(f"continuing after epoch {first}", flush=True)
    for parameter, momentum in zip(model.parameters(), momenta, strict=True):
        optimiser.state[parameter]["momentum_buffer"] = momentum
    steps = len(train_x) // recipe.batch
    model.train()
    for epoch in range(first, recipe.epochs):
        began, total_loss = time.monotonic(), 0.0
        generator = torch.Generator().manual_seed(recipe.seed * 100_003 + epoch)
        order = torch.randperm(len(train_x), generator=generator)
        for step in range(steps):
            index = order[step * recipe.batch : (step + 1) * recipe.batch]
            x = augment(train_x[index].float() / 255, recipe.shift, generator)
            if epoch < recipe.small_epochs:
                size = (recipe.small_size, recipe.small_size)
                x = F.interpolate(x, size, mode="bilinear", antialias=True)
            progress = (epoch * steps + step) / (recipe.epochs * steps)
            for group in optimiser.param_groups:
                group["lr"] = recipe.learning_rate(progress)
            logits = forward(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, train_y[index])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total_loss += loss.item()
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        for i, parameter in enumerate(model.parameters()):
            buffer = optimiser.state[parameter]["momentum_buffer"]
            state[f"momentum.{i}"] = buffer.contiguous()
        seconds = time.monotonic() - began
        spent += seconds
        state["epoch"], state["seconds"] = torch.tensor(epoch + 1), torch.tensor(spent)
        save_file(state, state_file.with_suffix(".new"))
        state_file.with_suffix(".new").replace(state_file)
        left = seconds * (recipe.epochs - epoch - 1) / 60
        note = f"epoch {epoch + 1}/{recipe.epochs} loss {total_loss / steps:.3f} {seconds:.0f} s"
        print(f"{note} (about {left:.0f} min left)", flush=True)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, out / "cifar10-resnet20.safetensors")
    result = accuracy(model, test_x, test_y)
    card = model_card(model, recipe, result, spent, compiled)
    (out / "cifar10-resnet20.json").write_text(json.dumps(card, indent=2) + "\n")
    print(f"test accuracy {100 * result:.2f} % on {len(test_y)} images", flush=True)
    return result


def model_card(
    model: nn.Module, recipe: Recipe, test_accuracy: float, seconds: float, compiled: bool
) -> dict[str, Any]:
    """What a reader needs to know of the weights, and to repeat them."""
    sample = load("sample")
    right = accuracy(model, (sample.images * 255).round().byte(), sample.labels)
    flag = " --compile" if compiled else ""
    return {
        "name": "cifar10-resnet20",
        "summary": f"ResNet-20 trained on CIFAR-10, {100 * test_accuracy:.1f} % test accuracy",
        "architecture": "brusle.zoo.resnet.resnet20: He et al. 2016, 1x1 convolutions as shortcuts",
        "parameters": sum(p.numel() for p in model.parameters()),
        "classes": list(cifar10.CLASSES),
        "shape": [3, 32, 32],
        "input": "RGB in [0, 1]; normalisation is part of the net",
        "output": "logits",
        "data": "CIFAR-10 (Krizhevsky 2009): 50 000 training images, whole training set",
        "recipe": asdict(recipe),
        "seed": recipe.seed,
        "training_minutes": round(seconds / 60),
        "trained_on": f"CPU, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "test_accuracy": test_accuracy,
        "test_images": "CIFAR-10 test set, all 10 000 images; not used for any choice",
        "sample_correct": round(right * len(sample)),
        "repeat": f"python -m brusle.zoo.train --data CIFAR10_DIR --seed {recipe.seed}{flag}",
        "repeat_note": "repeats up to rounding: another machine, number of threads or torch ends "
        "within a few tenths of a percent",
        "licence": "weights: as the project; CIFAR-10 images: see its authors' page",
    }


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description="Train the bundled CIFAR-10 ResNet-20.")
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--out", type=Path, default=Path("training"), help="where to write")
    parser.add_argument("--epochs", type=int, default=Recipe.epochs)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--compile", action="store_true", help="faster, needs a C++ compiler")
    args = parser.parse_args()
    recipe = Recipe(epochs=args.epochs, seed=args.seed)
    train(recipe, args.data, args.out, compiled=args.compile)


if __name__ == "__main__":
    main()
