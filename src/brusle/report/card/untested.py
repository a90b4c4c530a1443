"""What a run does not show: each sentence under a condition, which is looked up in the run."""

from __future__ import annotations

from collections.abc import Callable

from brusle.report.card.facts import Facts
from brusle.report.wording import class_name, count, listed, span

FEW = 10  # images: a class with fewer says little about the class
_NAMED = 5  # names of classes in a sentence


def untested(facts: Facts) -> list[str]:
    """All sentences that hold."""
    return [sentence for say in _SENTENCES if (sentence := say(facts))]


def _models(facts: Facts) -> str:
    return (
        "Other threat models: small changes of all pixels (l_inf, l2), patches, rotations, blur "
        "and other changes of what is seen, printed or filmed images. Only changes of few pixels "
        "were made, in files."
    )


def _lifecycle(facts: Facts) -> str:
    return (
        "Other attacks on the system: manipulated training data or model files, extraction of the "
        "model or of its training data, and everything around the classifier."
    )


def _white_box(facts: Facts) -> str:
    if any(setting.needs == "gradients" for setting in facts.settings):
        return ""
    return "White-box attacks: no attack used gradients. Who has the model may need fewer pixels."


def _scores(facts: Facts) -> str:
    if any(setting.needs == "scores" for setting in facts.settings):
        return ""
    return "Attacks that follow scores of the victim."


def _labels(facts: Facts) -> str:
    if any(setting.needs == "labels" for setting in facts.settings):
        return ""
    return "Attacks that see nothing but the label on top (decision-based)."


def _adaptive(facts: Facts) -> str:
    if not facts.content.about.defences:
        return ""
    names = listed(facts.content.about.defences)
    return f"Adaptive attacks: no attack was made for the defence in particular ({names})."


def _one_attack(facts: Facts) -> str:
    if len(facts.attacks) > 1:
        return ""
    return f"Other attacks than {facts.attacks[0]}: where one fails, another may succeed."


def _goals(facts: Facts) -> str:
    if "targeted" not in facts.goals:
        return "Targeted attacks, which look for a certain wrong class."
    if "untargeted" not in facts.goals:
        return "Untargeted attacks, for which any wrong class will do; they are the easier ones."
    return ""


def _targets(facts: Facts) -> str:
    others = len(facts.content.about.classes) - 1
    if not facts.targets or others < 1 or min(facts.targets.values()) >= others:
        return ""
    return f"Most targets: {span(facts.targets.values())} of {others} other classes per image."


def _budgets(facts: Facts) -> str:
    pixels = max(setting.pixels for setting in facts.settings)
    queries = max(setting.queries for setting in facts.settings)
    return f"More than {count(pixels, 'pixel')} or {count(queries, 'query')} per image."


def _not_converged(facts: Facts) -> str:
    found = facts.content.flags().get("not-converged", [])
    if not found:
        return ""
    return (
        f"Where success ends: in {len(found)} of {len(facts.settings)} settings it still rose at "
        f"the query limit (not-converged), so that more queries would probably find more."
    )


def _one_seed(facts: Facts) -> str:
    single = [family for family in facts.content.families if len(family.seeds) == 1]
    if not single:
        return ""
    return (
        f"How much results vary with random numbers: {len(single)} of "
        f"{len(facts.content.families)} settings ran with one seed."
    )


def _data(facts: Facts) -> str:
    return "Images from elsewhere: all are from one data set, as it was read and framed here."


def _some_images(facts: Facts) -> str:
    limited = [plan for plan in facts.plans if plan.get("limit") is not None or plan.get("pairs")]
    if not limited:
        return ""
    return f"Other images of the data set than the {facts.content.images} that were chosen."


def _few_of_a_class(facts: Facts) -> str:
    few = [label for label, number in facts.per_class.items() if number < FEW]
    if not few:
        return ""
    return f"Single classes: {_classes(facts, few)} with fewer than {FEW} images."


def _no_image_of_a_class(facts: Facts) -> str:
    classes = range(len(facts.content.about.classes))
    missing = [label for label in classes if label not in facts.per_class]
    return f"{_classes(facts, missing).capitalize()} without any image." if missing else ""


def _classes(facts: Facts, labels: list[int]) -> str:
    """How many classes, and which, if they are few."""
    number = "one class" if len(labels) == 1 else f"{len(labels)} classes"
    if len(labels) > _NAMED:
        return number
    return f"{number} ({listed([class_name(facts.content.classes, x) for x in labels])})"


def _wrong_before(facts: Facts) -> str:
    clean = facts.content.clean
    wrong = clean.count - clean.hits
    if not wrong:
        return ""
    what = "the image that is" if wrong == 1 else f"the {wrong} images that are"
    return f"Attacks on {what} classified wrongly already: they count as not robust."


def _errors(facts: Facts) -> str:
    if not facts.errors:
        return ""
    return f"{count(facts.errors, 'attack').capitalize()} on which the victim failed: in no rate."


def _averaging(facts: Facts) -> str:
    if not facts.content.randomised or any(setting.eot > 1 for setting in facts.settings):
        return ""
    return "Attacks that average over the victim's random answers (eot)."


def _service(facts: Facts) -> str:
    if facts.content.about.spending is None:
        return ""
    last = facts.content.sessions[-1].began
    return f"The service after the last session (begun {last}): its owner may change the model."


def _weights(facts: Facts) -> str:
    if facts.content.about.weights:
        return ""
    return "Whether another victim of this name is the same: it has no weights that can be hashed."


def _first_look(facts: Facts) -> str:
    if any(session.preflight_queries for session in facts.content.sessions):
        return ""
    return "Whether the victim answers as it should: no first look at it is stored."


def _unfinished(facts: Facts) -> str:
    return f"What is missing: {facts.content.state}" if facts.content.state else ""


_SENTENCES: tuple[Callable[[Facts], str], ...] = (
    _unfinished,
    _models,
    _white_box,
    _scores,
    _labels,
    _adaptive,
    _averaging,
    _one_attack,
    _goals,
    _targets,
    _budgets,
    _not_converged,
    _one_seed,
    _data,
    _some_images,
    _few_of_a_class,
    _no_image_of_a_class,
    _wrong_before,
    _errors,
    _weights,
    _service,
    _first_look,
    _lifecycle,
)
