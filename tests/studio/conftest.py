import pytest
from studios import Asker

from brusle.studio import Studio


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """Studios look below the working directory for runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def bundled():
    """A studio with what is bundled."""
    with Studio() as studio, Asker(studio) as asker:
        yield asker
