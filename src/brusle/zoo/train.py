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

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from brusle.data import cifar10
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
    state_file, first = out / "training.safetensors", 0
    momenta = [torch.zeros_like(p) for p in model.parameters()]
    if state_file.exists():
        state = load_file(state_file)
        first = int(state.pop("epoch"))
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
        state["epoch"] = torch.tensor(epoch + 1)
        save_file(state, state_file.with_suffix(".new"))
        state_file.with_suffix(".new").replace(state_file)
        seconds = time.monotonic() - began
        left = seconds * (recipe.epochs - epoch - 1) / 60
        note = f"epoch {epoch + 1}/{recipe.epochs} loss {total_loss / steps:.3f} {seconds:.0f} s"
        print(f"{note} (about {left:.0f} min left)", flush=True)
    result = accuracy(model, test_x, test_y)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, out / "cifar10-resnet20.safetensors")
    summary = {"test_accuracy": result, "recipe": asdict(recipe)}
    (out / "cifar10-resnet20.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"test accuracy {100 * result:.2f} % on {len(test_y)} images", flush=True)
    return result


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
