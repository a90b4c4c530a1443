"""What an evaluation does unless something else is asked for; the command line shows the same."""

from __future__ import annotations

from typing import Literal

VICTIM = "zoo:cifar10-resnet20"
DATA = "sample"
GOALS: tuple[Literal["untargeted"], Literal["targeted"]] = ("untargeted", "targeted")
ATTACKS = ("brusle", "pixel-bandit")  # the paper's, and the best
PIXELS: dict[Literal["untargeted", "targeted"], tuple[int, ...]] = {
    "untargeted": (2, 5),
    "targeted": (10, 20),
}
QUERIES = 300
TARGETS = 1  # classes to reach, of each image
LIMIT = 100  # images
FORMATS = ("oip", "tfserving", "google-vision", "rekognition", "json")  # of `brusle serve`
FILM = 6.0  # seconds of `brusle film`
