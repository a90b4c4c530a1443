"""Put trained weights and their cards into the zoo.

python training/bundle.py trained/NAME.json ...
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from brusle import zoo
from brusle.zoo import planes

MODELS = Path(zoo.__file__).parent / "models"


def bundle(card: Path, models: Path = MODELS) -> None:
    """Write the weights that lie beside ``card`` into ``models``, and the card."""
    weights = load_file(card.with_suffix(".safetensors"))
    save_file(planes.split(weights), models / f"{card.stem}.safetensors")
    shutil.copyfile(card, models / card.name)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        bundle(Path(name))
