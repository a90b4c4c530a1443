"""Where results come from: versions, hardware, and revisions of the code."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

import brusle
from brusle.evaluation.running.revision import git_revision
from brusle.victims.fingerprints import UNSURE, digest


def provenance(device: torch.device) -> dict[str, Any]:
    """Facts about the software and the machine; nothing that names the machine or its user."""
    return {
        "brusle": brusle.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "git_brusle": git_revision(Path(brusle.__file__).parent, "__init__.py"),
        "git_here": git_revision(Path.cwd()),
    }


def fingerprint(victim: Any) -> str:
    """A hash of the weights of a victim, behind its defences; empty if it cannot be told.

    Victims that are no torch modules may say it themselves, in an attribute ``fingerprint``.
    """
    while hasattr(victim, "victim"):
        victim = victim.victim
    module = getattr(victim, "module", None)
    if isinstance(module, torch.nn.Module):
        return digest(module)
    return str(getattr(victim, "fingerprint", ""))


def notes_on_weights(weights: str) -> list[str]:
    """What a reader should know of a `fingerprint`."""
    if not weights.endswith(UNSURE):
        return []
    return [
        "a part of the victim's state cannot be compared (it holds something that cannot be taken "
        "apart, or does not tell its state): if only that changes, results of both are mixed"
    ]


def _processor() -> str:
    """The model of the processor, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
