"""The standard ensemble, called as users of AutoAttack do (Croce and Hein, ICML 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brusle.attacks.base import SparseAttack
from brusle.attacks.combined import Ensemble
from brusle.attacks.names import ATTACKS, make
from brusle.attacks.standard import standard
from brusle.errors import InputError
from brusle.interop.calling import in_pixels
from brusle.interop.layout import Layout
from brusle.outcomes import ANSWERED, ATTACKED, CLAIMED, share
from brusle.results import AttackResult
from brusle.victim import Victim
from brusle.victims import as_victim, resolve_device, wrap

Images = Tensor | tuple[Tensor, Tensor]


class AutoAttack:
    """What ``brusle evaluate --standard`` runs, under the names that users of AutoAttack type.

        adversary = brusle.AutoAttack(model, norm="L0", eps=8)
        x_adv = adversary.run_standard_evaluation(x, y, bs=250)
        adversary.result.robust_accuracy, adversary.result.ledger

    Attributes:
        attacks_to_run: names of attacks, in order; may be set anew if ``version`` is "custom".
        result: of the last evaluation; of several attacks one by one, of the last of these.
        results: name to result, if attacks ran one by one.
    """

    def __init__(
        self,
        model: Any,
        norm: str = "L0",
        eps: int | None = None,
        seed: int | None = None,
        verbose: bool = True,
        attacks_to_run: Iterable[str] = (),
        version: str = "standard",
        is_tf_model: bool = False,
        device: Any = "auto",
        log_path: str | Path | None = None,
        *,
        queries: int = 500,
    ) -> None:
        """Prepare an evaluation; nothing is asked yet.

        Args:
            model: an ``nn.Module`` or a function of torch images in [0, 1] that returns logits
                which autograd can follow, or any victim of brusle.
            norm: "L0"; other attacks are AutoAttack's own.
            eps: the most pixels that may change.
            seed: same seed, same result; None is 0.
            verbose: print what comes out.
            attacks_to_run: names of attacks with the version "custom", as in
                ``["pixel-bandit", "sparse-rs"]``.
            version: "standard" or "custom".
            is_tf_model: False; models of TensorFlow become victims with `brusle.victims.wrap`.
            device: where the model runs; "auto" leaves it where it is.
            log_path: a file to which everything printed is added.
            queries: the query limit of each attack.
        """
        _check(norm, version, is_tf_model)
        self.norm, self.epsilon, self.queries = norm, in_pixels("eps", eps), queries
        self.seed, self.verbose, self.version, self.log_path = seed, verbose, version, log_path
        self.model, self.device = model, device
        self.victim = _victim(model, str(device))
        self.attacks_to_run = list(attacks_to_run)
        if version == "standard":
            if self.attacks_to_run:
                raise InputError("attacks_to_run is for version='custom': add that, or leave it")
            members = standard(self.victim, self.epsilon, queries).attacks
            self.attacks_to_run = [_name(member) for member in members]
        self.result: AttackResult | None = None
        self.results: dict[str, AttackResult] = {}

    def run_standard_evaluation(
        self,
        x_orig: Any,
        y_orig: Any,
        bs: int = 250,
        return_labels: bool = False,
        state_path: Any = None,
    ) -> Images:
        """Attack with one after the other what has withstood those before.

        Args:
            x_orig: ``(n, c, h, w)`` floats in [0, 1].
            y_orig: ``(n,)`` true labels.
            bs: most images in one call of the model.
            return_labels: return what the model says, too.
            state_path: None; `brusle.evaluate` keeps what is unfinished in its folder.

        Returns:
            adversarial images, the clean ones where nothing was found.
        """
        if state_path is not None:
            raise InputError(
                "state_path is not for brusle: brusle.evaluate(..., out=FOLDER) goes on where it "
                "was interrupted"
            )
        members = self._members()
        self._say(f"using {self.version} version including {', '.join(self.attacks_to_run)}")
        attack = Ensemble(members, self.version.capitalize())
        result = self.result = self._run(attack, x_orig, y_orig, bs)
        self._say_course(result, [member.label for member in members])
        return _returned(result, x_orig, return_labels)

    def run_standard_evaluation_individual(
        self, x_orig: Any, y_orig: Any, bs: int = 250, return_labels: bool = False
    ) -> dict[str, Images]:
        """Attack all images with each attack; name to what `run_standard_evaluation` returns.

        Args:
            x_orig: as there, and so are the others.
            y_orig: likewise.
            bs: likewise.
            return_labels: likewise.
        """
        members = dict(zip(self.attacks_to_run, self._members(), strict=True))
        self._say(f"using {self.version} version including {', '.join(members)}")
        self.results = {}
        for name, attack in members.items():
            result = self.result = self.results[name] = self._run(attack, x_orig, y_orig, bs)
            self._say(
                f"robust accuracy by {name.upper():<14}{result.robust_accuracy:8.2%} "
                f"(time attack: {result.seconds:.1f} s)"
            )
        return {
            name: _returned(result, x_orig, return_labels) for name, result in self.results.items()
        }

    def _members(self) -> list[SparseAttack]:
        """The attacks to run."""
        made = [make(name, self.epsilon, self.queries) for name in self.attacks_to_run]
        members = [attack for attack in made if isinstance(attack, SparseAttack)]
        if not members or len(members) < len(made):
            raise InputError(
                "attacks_to_run must be names of single attacks, at least one: see `brusle list "
                "attacks`"
            )
        return members

    def _run(self, attack: Ensemble | SparseAttack, x: Any, y: Any, bs: int) -> AttackResult:
        return attack(self.victim, x, y, seed=self.seed or 0, batch_size=bs)

    def _say_course(self, result: AttackResult, labels: list[str]) -> None:
        """What a user of AutoAttack looks for in its output."""
        answered = [one in ANSWERED for one in result.status]
        right = sum(one in ATTACKED for one in result.status)
        self._say(f"initial accuracy: {share(right, sum(answered)):.2%}")
        for turn, name in enumerate(self.attacks_to_run, 1):
            fooled = sum(
                status in CLAIMED and by in labels[:turn]
                for status, by in zip(result.status, result.found_by, strict=True)
            )
            accuracy = share(right - fooled, sum(answered))
            self._say(f"robust accuracy after {name.upper()}: {accuracy:.2%}")
        if not all(answered):
            self._say(f"errors, in no figure: {answered.count(False)} of {len(answered)} images")
        most = int(result.pixels[result.success].max()) if bool(result.success.any()) else 0
        asked = int(result.ledger.total.sum())
        self._say(
            f"max L0 perturbation: {most} of {self.epsilon} pixels, {asked} queries "
            f"(total time {result.seconds:.1f} s)"
        )
        self._say(f"robust accuracy: {result.robust_accuracy:.2%}")

    def _say(self, line: str) -> None:
        if self.verbose:
            print(line)
            if self.log_path is not None:
                with Path(self.log_path).open("a", encoding="utf-8") as log:
                    log.write(f"{line}\n")


def _check(norm: str, version: str, is_tf_model: bool) -> None:
    if norm != "L0":
        raise InputError(f"norm is {norm!r}: brusle changes few pixels, so say norm='L0'")
    if version not in ("standard", "custom"):
        raise InputError(
            f"version is {version!r}: choose 'standard' or 'custom'; a randomised model is "
            f"declared with brusle.victims.wrap(model, output='logits', randomised=True)"
        )
    if is_tf_model:
        raise InputError(
            "is_tf_model is for AutoAttack's own wrappers: give brusle.victims.wrap(function, "
            "output='logits', arrays='numpy')"
        )


def _victim(model: Any, device: str) -> Victim:
    """A model as AutoAttack takes it; a plain function returns logits there."""
    is_victim = all(hasattr(model, name) for name in ("name", "output", "device"))
    if is_victim or isinstance(model, nn.Module) or not callable(model):
        return as_victim(model, device)
    forward: Callable[[Tensor], Tensor] = model
    where = torch.device("cpu") if device == "auto" else resolve_device(device)
    return wrap(forward, output="logits", device=where, differentiable=True)


def _name(attack: SparseAttack) -> str:
    """What `brusle.attacks.make` calls it."""
    return next(name for name, kind in ATTACKS.items() if type(attack) is kind)


def _returned(result: AttackResult, x: Any, return_labels: bool) -> Images:
    """What AutoAttack returns: adversarial images, and the clean ones where there are none."""
    theirs = torch.as_tensor(x).detach()
    hit, clean = result.success, result.problems.images
    images = torch.where(hit[:, None, None, None], result.images, clean)
    found = Layout().put_back(theirs, clean, images)
    if not return_labels:
        return found
    labels = torch.where(hit, result.labels, result.clean_labels)
    return found, labels.to(theirs.device)
