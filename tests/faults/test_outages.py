"""A victim that goes down for good, at any of its calls: nothing is stored that it did not answer.

Down is trouble that does not end, or an exception on every image: neither says a word about an
image.
"""

from contextlib import suppress

import mortal
import pytest
import torch
from stored import stored

from brusle.errors import VictimUnavailable
from brusle.trouble import Patience

pytestmark = pytest.mark.slow

DOWN = {
    "no connection": ConnectionError("connection refused"),
    "a bug of its own": ValueError("the device is gone"),
}


class Down(mortal.Mortal):
    """Answers so many calls."""

    patience = Patience(waits=1, first=0, sleep=lambda seconds: None)

    def __init__(self, log, calls: int, error: Exception) -> None:
        super().__init__(log, delay=0)
        self.calls, self.error = calls, error

    def draw(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        self.calls -= 1
        if self.calls < 0:
            raise self.error
        return super().draw(images, keys)


@pytest.mark.parametrize("reason", DOWN)
@pytest.mark.parametrize("kind", mortal.ATTACKS)
def test_what_is_stored_was_answered(kind, reason, tmp_path, monkeypatch) -> None:
    mortal.run(tmp_path / "whole", tmp_path / "whole.log", kind)
    expected = stored(tmp_path / "whole")
    total = len(mortal.calls(tmp_path / "whole.log"))
    for calls in (1, total // 3):
        folder = tmp_path / f"after-{calls}"

        def down(log, delay, stubborn, calls=calls):
            return Down(log, calls, DOWN[reason])

        with monkeypatch.context() as patch:
            patch.setattr(mortal, "Mortal", down)
            # a few images that fail together are error rows, since each may be a bad one
            with suppress(VictimUnavailable) if calls > 1 else pytest.raises(VictimUnavailable):
                mortal.run(folder, tmp_path / "log", kind, on_warning=lambda text: None)
        said = {key: row for key, row in stored(folder).items() if row.status != "error"}
        assert said.items() <= expected.items()
        errors = stored(folder).keys() - said.keys()
        assert not errors or reason == "a bug of its own"
        mortal.run(folder, tmp_path / "log", kind, retry_errors=True)
        assert stored(folder) == expected
