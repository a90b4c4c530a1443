import hashlib
import platform
import subprocess
from pathlib import Path

import pytest
import torch

import brusle
from brusle.evaluation.running.provenance import provenance
from brusle.evaluation.running.revision import git_revision
from brusle.evaluation.storing.store import Store
from brusle.victims.fingerprints import fingerprint


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_git_revision_is_that_of_the_repository(tmp_path) -> None:
    assert git_revision(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "mine.py").write_text("1")
    git(tmp_path, "add", "mine.py")
    git(tmp_path, "commit", "-qm", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert git_revision(tmp_path) == commit
    (tmp_path / "other.txt").write_text("not under version control")
    assert git_revision(tmp_path, "mine.py") == commit
    assert git_revision(tmp_path, "other.txt") is None  # installed in somebody's repository


def test_provenance_names_no_machine() -> None:
    facts = provenance(torch.device("cpu"))
    assert facts["brusle"] == brusle.__version__ and facts["torch"] == torch.__version__
    assert facts["cores"] >= 1 and facts["memory_gb"] >= 1
    assert platform.node() not in str(facts) and str(Path.home()) not in str(facts)


def test_results_of_several_revisions_are_told(tmp_path) -> None:
    images, labels = torch.rand(3, 1, 6, 6), torch.zeros(3, dtype=torch.int64)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    arguments = (net, (images, labels), [brusle.attacks.BruSLe(1, 5)], "untargeted", tmp_path)
    assert brusle.evaluate(*arguments).notes == []
    with Store.write(tmp_path) as store:
        about = store.about()
        about.sessions[0].provenance["git_brusle"] = "0123456789ab"
        store.write_about(about)
    (note,) = brusle.evaluate(*arguments).notes
    assert "from 2 revisions of brusle, 0123456789ab to" in note


def test_every_session_is_written_down(tmp_path) -> None:
    images = torch.rand(4, 1, 6, 6)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    labels = net(images).argmax(1)
    for limit in (2, 4):
        attacks = [brusle.attacks.BruSLe(1, 5)]
        run = brusle.evaluate(net, (images, labels), attacks, "untargeted", tmp_path, limit=limit)
    plans = [session.plan for session in run.about.sessions]
    assert [plan["limit"] for plan in plans] == [2, 4]
    assert all((p["victim"], p["data"]) == ("Sequential", "arrays") for p in plans)
    assert all(p["attacks"] == [repr(brusle.attacks.BruSLe(1, 5))] for p in plans)
    assert all("torch" in session.provenance for session in run.about.sessions)
    assert run.about.weights == fingerprint(brusle.victims.wrap(net, output="logits"))
    assert run.as_dict()["plan"] == plans[1] and run.as_dict()["images"] == 4


def test_fingerprints_tell_weights_apart(tmp_path) -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3), torch.nn.BatchNorm1d(3))
    victim = brusle.victims.wrap(net, output="logits", shape=(3, 2, 2))
    first = fingerprint(victim)
    assert fingerprint(brusle.defences.make("jpeg:75", victim)) == first
    net[2].running_mean.add_(1)  # statistics count as well
    assert fingerprint(victim) != first
    by_hand = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        by_hand.update(name.encode() + value.numpy().tobytes())
    assert fingerprint(victim) == by_hand.hexdigest()[:16]
    half = brusle.victims.TorchVictim(net, dtype=torch.bfloat16)  # NumPy has no such type
    assert len(fingerprint(half)) == 16
    assert fingerprint(brusle.victims.wrap(lambda x: x, output="logits")) == ""


def test_onnx_files_have_fingerprints(tmp_path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    path = tmp_path / "net.onnx"
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    victim = brusle.victims.wrap(net, output="logits", shape=(3, 2, 2))
    seen = set()
    for change in (0.0, 0.5):
        with torch.no_grad():
            net[1].weight.add_(change)
        brusle.victims.export_onnx(victim, path)
        prints = {fingerprint(brusle.load_victim(f"onnx:{path}", "cpu")) for _ in range(2)}
        assert len(prints) == 1
        seen |= prints
    # large weights lie beside the file
    (tmp_path / "net.onnx.data").write_bytes(b"weights")
    seen.add(fingerprint(brusle.load_victim(f"onnx:{path}", "cpu")))
    assert len(seen) == 3 and "" not in seen
    # the export of a torch model has the model's
    name = "zoo:cifar10-resnet20"
    prints = {fingerprint(brusle.load_victim(n, "cpu")) for n in (name, f"{name}?runtime=onnx")}
    assert len(prints) == 1
