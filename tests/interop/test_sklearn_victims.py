"""`sklearn:`, with classifiers that scikit-learn has fitted and skops has written."""

import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from entry import run

import brusle
from brusle.errors import InputError, VictimError
from brusle.victims.fingerprints import fingerprint

pytestmark = pytest.mark.interop

SHAPE = "shape=1,8,8&scale=16"
ADAM = "sklearn.neural_network._stochastic_optimizers.AdamOptimizer"
TREES = "trust=sklearn.tree._tree.Tree"


@pytest.fixture(scope="module")
def skops() -> ModuleType:
    pytest.importorskip("sklearn")
    return pytest.importorskip("skops.io")


@pytest.fixture(scope="module")
def digits() -> Any:
    from sklearn.datasets import load_digits

    return load_digits()


def images(digits: Any, count: int = 12) -> torch.Tensor:
    return torch.tensor(digits.images[:count, None] / 16, dtype=torch.float32)


def models() -> dict[str, Any]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "forest": RandomForestClassifier(10, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression(max_iter=50)),
        "neighbours": KNeighborsClassifier(5),
        "network": MLPClassifier((16,), max_iter=20, random_state=0),
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("which", ["forest", "pipeline", "neighbours", "network"])
def test_the_same_probabilities_and_the_same_attack(skops, digits, which, tmp_path) -> None:
    model = models()[which].fit(digits.data[200:], digits.target[200:])
    name = f"{saved(skops, model, tmp_path)}?{SHAPE}"
    trust = {"forest": TREES, "network": f"trust={ADAM}"}.get(which)
    if trust:
        with pytest.raises(VictimError, match=f"does not build unasked: .*, add {trust}$"):
            brusle.load_victim(name)
    victim = brusle.load_victim(f"{name}&{trust}" if trust else name)
    x = images(digits)
    assert np.allclose(victim(x).numpy(), model.predict_proba(digits.data[:12]), atol=1e-12)
    assert victim.shape == (1, 8, 8) and victim.classes is None
    by_hand = brusle.victims.wrap(
        lambda array: model.predict_proba(array.reshape(len(array), -1) * 16),
        output="probabilities",
        arrays="numpy",
    )
    labels = torch.tensor(digits.target[:12])
    attack = brusle.attacks.BruSLe(pixels=6, queries=60)
    ours, theirs = (attack(one, x, labels) for one in (victim, by_hand))
    assert torch.equal(ours.queries, theirs.queries) and torch.equal(ours.images, theirs.images)
    assert ours.success.any()


def saved(skops: Any, model: Any, folder: Path) -> str:
    skops.dump(model, folder / "model.skops")
    return f"sklearn:{folder}/model.skops"


def test_colours_in_either_order(skops, tmp_path) -> None:
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(0)
    x = generator.random((60, 4, 5, 3))  # pixel by pixel
    model = LogisticRegression().fit(x.reshape(60, -1), np.array(["ant", "bee", "cat"] * 20))
    name = saved(skops, model, tmp_path)
    victim = brusle.load_victim(f"{name}?shape=3,4,5&layout=nhwc")
    planes = torch.tensor(x[:7].transpose(0, 3, 1, 2), dtype=torch.float32)
    expected = model.predict_proba(x[:7].astype(np.float32).reshape(7, -1))
    assert np.allclose(victim(planes).numpy(), expected, atol=1e-7)
    assert victim.classes == ("ant", "bee", "cat")
    other = brusle.load_victim(f"{name}?shape=3,4,5")
    rows = planes.flatten(1).double().numpy()
    assert np.allclose(other(planes).numpy(), model.predict_proba(rows), atol=1e-12)
    with pytest.raises(InputError, match="are 3 x 5 x 4, .* takes 3 x 4 x 5"):
        victim(planes.transpose(2, 3))


def test_options_that_cannot_be(skops, digits, tmp_path) -> None:
    from sklearn.naive_bayes import GaussianNB

    name = saved(skops, GaussianNB().fit(digits.data, digits.target), tmp_path)
    for options, pattern in (
        ("", r"add \?shape=CHANNELS,HEIGHT,WIDTH \(it takes 64 numbers\)"),
        ("?shape=1,8,9", "shape=1,8,9 is 72 numbers, but .* takes 64"),
        ("?shape=8,8", "must be channels,height,width, as in 1,8,8"),
        ("?shape=1,8,8&trust=os.system", "takes types of scikit-learn, and not os.system: load"),
        ("?shape=1,8,8&unpickle=1", "no option 'unpickle'"),
        ("?shape=1,8,8&layout=hwc", "option layout of .* choose from nchw, nhwc"),
    ):
        with pytest.raises(InputError, match=pattern):
            brusle.load_victim(name + options)


def test_classifiers_without_probabilities_say_so(skops, digits, tmp_path) -> None:
    from sklearn.cluster import KMeans
    from sklearn.svm import LinearSVC

    name = saved(skops, LinearSVC().fit(digits.data, digits.target), tmp_path)
    with pytest.raises(VictimError, match="is a LinearSVC without predict_proba: .*Calibrated"):
        brusle.load_victim(f"{name}?{SHAPE}")
    name = saved(skops, KMeans(3, n_init=1).fit(digits.data), tmp_path)
    with pytest.raises(VictimError, match="is a KMeans without predict_proba"):
        brusle.load_victim(f"{name}?{SHAPE}")


def test_several_labels_at_once(skops, digits, tmp_path) -> None:
    from sklearn.ensemble import RandomForestClassifier

    both = np.stack([digits.target, digits.target % 2], axis=1)
    model = RandomForestClassifier(3).fit(digits.data, both)
    with pytest.raises(VictimError, match="is no classifier of one label"):
        brusle.load_victim(f"{saved(skops, model, tmp_path)}?{SHAPE}&{TREES}")


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def shout(x: Any) -> Any:
    raise AssertionError("it ran")


def test_what_skops_does_not_trust_is_not_built(skops, digits, tmp_path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = make_pipeline(FunctionTransformer(), LogisticRegression(max_iter=5))
    model.fit(digits.data, digits.target)
    model.steps[0][1].func = shout
    with pytest.raises(VictimError, match=r"holds .*shout, which skops does not build.*python:"):
        brusle.load_victim(f"{saved(skops, model, tmp_path)}?{SHAPE}")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_files_are_refused(skops, tmp_path) -> None:
    mark = tmp_path / "it-ran"
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Trap(mark)))
    (tmp_path / "text.skops").write_text("text")
    (tmp_path / "damaged.skops").write_bytes(b"PK\x03\x04 and no more")
    torch.save({}, tmp_path / "weights.pt")
    for file, pattern in (
        ("model.pkl", "is a pickle, which could run code: save the model with skops.io.dump"),
        ("text.skops", "is a text file"),
        ("damaged.skops", "is a damaged archive"),
        ("weights.pt", "is a checkpoint: save the model with skops.io.dump"),
        ("missing.skops", "cannot open"),
    ):
        with pytest.raises(VictimError, match=pattern) as said:
            brusle.load_victim(f"sklearn:{tmp_path}/{file}?{SHAPE}")
        assert "\n" not in str(said.value)
    assert not mark.exists()


def test_old_versions_of_skops_are_refused(skops, digits, tmp_path, monkeypatch) -> None:
    from sklearn.naive_bayes import GaussianNB

    name = saved(skops, GaussianNB().fit(digits.data, digits.target), tmp_path)
    monkeypatch.setattr("skops.__version__", "0.11.0")
    with pytest.raises(VictimError, match="skops 0.11.0 is too old, 0.13 or later builds"):
        brusle.load_victim(f"{name}?{SHAPE}")


def test_a_run_by_name(skops, digits, tmp_path) -> None:
    model = models()["pipeline"].fit(digits.data[200:], digits.target[200:])
    name = f"{saved(skops, model, tmp_path)}?{SHAPE}"
    print_of = fingerprint(brusle.load_victim(name))
    np.savez(
        tmp_path / "digits.npz",
        images=(digits.images[:20, None] * 255 / 16).round().astype(np.uint8),
        labels=digits.target[:20],
    )
    asked = ["--victim", name, "--data", f"npz:{tmp_path}/digits.npz"]
    few = ["--attack", "brusle", "--goal", "untargeted", "--pixels", 5, "--queries", 50]
    folder = tmp_path / "run"
    assert run("evaluate", *asked, *few, "--out", folder).returncode == 0
    assert run("check", *asked).returncode == 0
    refused = run("verify", folder)
    assert refused.returncode == 2 and "builds the objects in that file" in refused.stderr
    assert run("verify", folder, "--victim", name).returncode == 0
    model = models()["forest"].fit(digits.data[200:], digits.target[200:])
    saved(skops, model, tmp_path)
    assert fingerprint(brusle.load_victim(f"{name}&{TREES}")) != print_of
    asked[1] = f"{name}&{TREES}"
    assert run("evaluate", *asked, *few, "--seed", 1, "--out", folder).returncode == 2
