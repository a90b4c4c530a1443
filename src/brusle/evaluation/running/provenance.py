"""Where results come from: versions, hardware, and revisions of the code."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from brusle import version
from brusle.evaluation.running.revision import git_revision
from brusle.version import __version__


def provenance(device: torch.device) -> dict[str, Any]:
    """Facts about the software and the machine; nothing that names the machine or its user."""
    return {
        "brusle": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "git_brusle": git_revision(Path(version.__file__).parent, "version.py"),
        "git_here": git_revision(Path.cwd()),
    }


def _processor() -> str:
    """The model of the processor, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
