"""Every page does what it says, block by block."""

import pytest
from blocks import PAGES, ROOT, RUN, blocks
from playing import play

pytestmark = pytest.mark.docs
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
PLAYED = [name for name, text in TEXTS.items() if any(b.language in RUN for b in blocks(text))]
SLOW = [name for name in PLAYED if any("slow" in b.notes for b in blocks(TEXTS[name]))]


@pytest.mark.parametrize("page", PLAYED)
def test_what_a_page_says_can_be_done(page, tmp_path) -> None:
    wrong = play(page, TEXTS[page], tmp_path, slow=False)
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_what_takes_longer_can_be_done_too(page, tmp_path) -> None:
    wrong = play(page, TEXTS[page], tmp_path)
    assert not wrong, wrong
