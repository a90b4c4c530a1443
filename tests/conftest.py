"""What tests of all parts share: their modules, one thread, and optional packages."""

import os
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # tests share small models and the transcription
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # begun in the background by a script: what tests start would not hear Ctrl-C either
    signal.signal(signal.SIGINT, signal.default_int_handler)

_kept: list[torch.library.Library] = []  # dropping one would take its operators back


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """torchvision; a CUDA build beside a CPU torch lacks two operators that no test calls."""
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        return import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        return import_module("torchvision")


@pytest.fixture(scope="session")
def timm(torchvision: ModuleType) -> ModuleType:
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    return import_module("timm")
