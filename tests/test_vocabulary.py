"""Labels by name: columns that grow, and replies that become tensors."""

import math
import pickle
import threading

import numpy as np
import pytest
import torch

from brusle.errors import InputError, VictimError
from brusle.replies import Consultation, Reply
from brusle.vocabulary import Vocabulary


def reply(**scores: float) -> Reply:
    return Reply(np.array(list(scores.values())), tuple(scores))


def test_labels_get_columns_in_the_order_in_which_they_are_named() -> None:
    words = Vocabulary()
    assert [words.column(name) for name in ("Car", "Window", "car ", "WINDOW", "Roof")] == [
        0, 1, 0, 1, 2,
    ]  # fmt: skip
    assert words.names == ("Car", "Window", "Roof") and len(words) == 3
    assert words.find("roof") == 2 and words.find("door") is None
    assert len(words) == 3, "looking for a label names none"


def test_aliases_mean_the_same_label() -> None:
    words = Vocabulary({"/m/0k4j": ["car", "Automobile"], "/m/0d4v4": ["window"]})
    assert words.column("car") == words.column("automobile") == words.column("/m/0k4j", "Car") == 0
    assert words.names == ("car",)
    with pytest.raises(InputError, match="'Window' is an alias of two labels"):
        Vocabulary({"a": ["window"], "b": ["Window"]})


def test_the_classes_of_the_data_come_first() -> None:
    words = Vocabulary()
    words.begin(["cat", "dog"])
    words.column("sofa")
    words.begin(["cat", "dog", "sofa"])  # a run that goes on
    with pytest.raises(InputError, match="open the victim anew"):
        words.begin(["dog", "cat"])


def test_of_two_classes_with_one_name_the_first_has_it() -> None:
    words = Vocabulary()
    words.begin(["crane", "maillot", "crane"])
    assert words.names == ("crane", "maillot", "crane")
    assert words.column("Crane") == 0
    words.begin(["crane", "maillot", "crane"])
    assert len(words) == 3


def test_ids_belong_to_the_class_that_is_called_so() -> None:
    words = Vocabulary()
    words.begin(["car", "roof"])
    assert words.column("/m/0k4j", "Car") == 0 and words.column("/m/0k4j", "Auto") == 0
    assert words.column("/m/other", "Car") == 2, "another label of the same name"
    assert words.column("/m/wheel", "Wheel") == 3
    stored = words.names
    assert stored == ("car", "roof", "Car", "Wheel")
    words.begin(stored)
    again = Vocabulary()  # in another life of the run
    again.begin(stored)
    assert again.column("/m/wheel", "Wheel") == 3 and again.column("/m/0k4j", "Car") == 0


def test_threads_and_pickles() -> None:
    words = Vocabulary()
    names = [f"label {i}" for i in range(200)]
    threads = [
        threading.Thread(target=lambda: [words.column(name) for name in names]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(words.names) == sorted(names)
    again = pickle.loads(pickle.dumps(words))
    assert again.names == words.names and again.column("new") == 200


def test_replies_become_scores_with_absent_labels() -> None:
    words = Vocabulary()
    whole = Consultation.of(
        [reply(car=0.9, window=0.6), Reply(error="no image"), reply(roof=0.7), Reply(labels=())],
        words,
    )
    inf = math.inf
    assert whole.scores[[0, 2, 3]].tolist() == [
        [0.9, 0.6, -inf],
        [-inf, -inf, 0.7],
        [-inf, -inf, -inf],
    ]
    assert whole.scores[1].isnan().all() and whole.errors == {1: "no image"}
    later = Consultation.of([reply(car=0.5)], words)
    assert later.scores.tolist() == [[0.5, -inf, -inf]]


def test_labels_that_mean_the_same_have_the_higher_score() -> None:
    words = Vocabulary({"car": ["auto"]})
    assert Consultation.of([reply(auto=0.4, car=0.8)], words).scores[0, 0] == 0.8


def test_scores_in_the_order_of_the_classes() -> None:
    replies = [Reply(np.array([1.0, 2.0, 3.0]), lost=2), Reply(error="bad"), Reply(np.ones(3))]
    whole = Consultation.of(replies, None, 3)
    assert whole.scores[0].tolist() == [1, 2, 3] and whole.lost.tolist() == [2, 0, 0]
    assert whole.scores.dtype == torch.float64
    with pytest.raises(VictimError, match="the number of classes must not change"):
        Consultation.of([Reply(np.ones(3)), Reply(np.ones(4))], None, 3)
    assert Consultation.of([Reply(error="bad")], None).scores.shape == (1, 2)
