"""What tests the documentation finds mistakes, and names the page and the line."""

import re
import urllib.request

import pytest
from blocks import blocks, commands
from playing import fits, play

GOOD = """# A page

```python
number = 6
print(number)
```
<!-- output -->
```text
6
```

<!-- file: notes/words.txt -->
```text
one two
```

<!-- setup: shell
echo hidden > hidden.txt
-->
```shell
cat notes/words.txt hidden.txt
echo finished in 3.2 s
```
<!-- output -->
```text
one two
hidden
finished in ... s
```

1. In a list:

   ```python
   print(number + 1)
   ```

<!-- exit 3 -->
```shell
exit 3
```
"""


def test_a_page_that_is_right_says_nothing(tmp_path) -> None:
    assert play("page.md", GOOD, tmp_path) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ("number = 6", "number = six", 4, r'File "page.md", line 4, .*number = six.*NameError'),
        ("print(number)\n", "print(number\n", 4, "SyntaxError"),
        ("text\n6\n", "text\n7\n", 4, "the page says\n7\n\nbut this is printed:\n6\n"),
        ("number + 1", "nmber + 1", 34, "line 34.*NameError"),
        ("cat notes/words.txt", "cat notes/wrds.txt", 21, "exit code 1.*wrds"),
        ("cat notes/words.txt", "cat $missing", 21, "missing: unbound variable"),
        ("cat notes/words.txt", "false | cat notes/words.txt", 21, "exit code 1"),
        ("echo hidden", "exit 9", 18, "exit code 9"),
        ("text\none two\nhidden", "text\none\nhidden", 21, "the page says\none\nhidden"),
        ("finished in ... s", "finished in ... minutes", 21, "the page says"),
        ("\nexit 3", "\nexit 0", 39, "exit code 0"),
    ],
)
def test_what_is_wrong_is_said_with_page_and_line(right, wrong, line, said, tmp_path) -> None:
    assert GOOD.count(right) == 1
    found = play("page.md", GOOD.replace(right, wrong), tmp_path)
    assert found.startswith(f"page.md, line {line}: ")
    assert re.search(said, found, re.DOTALL)


def test_brusle_is_that_of_this_checkout_and_nobody_is_called(tmp_path) -> None:
    page = """
```shell
brusle --version
python -c "import brusle; print(brusle.__version__)"
```
```python
import os, urllib.request
assert os.environ["HF_HUB_OFFLINE"] == "1" and os.environ["HOME"] in os.getcwd()
urllib.request.urlopen("http://192.0.2.1/")
```
"""
    found = play("page.md", page, tmp_path)
    assert found.startswith("page.md, line 7: ") and "have no network: 192.0.2.1" in found
    assert urllib.request.urlopen  # here it is as it was


def test_a_server_runs_until_the_page_ends_at_a_free_port(tmp_path) -> None:
    page = """<!-- port: 8080 -->
<!-- background -->
```shell
python -u -m http.server --bind 127.0.0.1 8080
```
<!-- setup: python
import os, time, urllib.request
for attempt in range(100):
    try:
        print("http://127.0.0.1:8080", urllib.request.urlopen("http://127.0.0.1:8080").status)
        break
    except OSError:
        time.sleep(0.1)
-->
<!-- output -->
```text
http://127.0.0.1:8080 200
```
"""
    assert play("page.md", page, tmp_path) == ""
    ended = "<!-- background -->\n```shell\necho no; exit 4\n```\n"
    assert "line 4: exit code 4" in play("page.md", f"\n{ended}", tmp_path / "other" / "folder")


def test_options_are_smaller_in_the_tests_only_where_they_are() -> None:
    page = "<!-- tested as: --limit 2, --queries 9 -->\n```shell\n{}\n```\n"
    (block,) = blocks(page.format("brusle evaluate --queries 500 --limit 100 --out x"))
    assert block.tested == "brusle evaluate --queries 9 --limit 2 --out x\n"
    assert "--queries 500" in block.text
    (block,) = blocks(page.format("brusle evaluate --limit 100"))
    with pytest.raises(ValueError, match="line 3: nothing has the option --queries"):
        _ = block.tested


def test_slow_blocks_are_left_out_unless_they_are_asked_for(tmp_path) -> None:
    page = "<!-- slow -->\n```shell\nfalse\n```\n"
    assert play("page.md", page, tmp_path / "a", slow=False) == ""
    assert "line 3: exit code 1" in play("page.md", page, tmp_path / "b")


@pytest.mark.parametrize(
    "page",
    [
        "<!-- output -->\n```text\n6\n```\n",
        "```python\n6\n```\n<!-- output -->\n```python\n6\n```\n",
        "<!-- exit 3 -->\n\nThe block was forgotten.\n",
    ],
)
def test_a_comment_that_belongs_to_nothing_is_refused(page) -> None:
    with pytest.raises(ValueError, match="the output of what|has no block"):
        blocks(page)


@pytest.mark.parametrize(
    ("expected", "printed", "whole", "part"),
    [
        ("a\nb\n", "a  \nb\n\n", True, True),
        ("a\n", "a\nb\n", False, True),
        ("a\n...\n", "a\nb\nc\n", True, True),
        ("a\n...\nc\n", "a\nc\n", True, True),
        ("a ... c\n", "a b c\n", True, True),
        ("a ... c\n", "a b\nc\n", False, False),
        ("b\n", "ab\n", False, False),
        ("b\n", "bc\n", False, False),
        ("1.5 [x]\n", "105 [x]\n", False, False),
    ],
)
def test_what_fits(expected, printed, whole, part) -> None:
    assert fits(expected, printed) == whole and fits(expected, printed, part=True) == part


def test_commands_that_are_not_run() -> None:
    text = """
$ brusle evaluate --attack brusle \\
    --limit 6
brusle status|report RUN      on run folders # yes
brusle serve --as 'a b' &
brusle list  # all
brusle-like is no command, nor is a brusle evaluate within a sentence
"""
    assert list(commands(text)) == [
        ["evaluate", "--attack", "brusle", "--limit", "6"],
        ["status", "RUN"],
        ["report", "RUN"],
        ["serve", "--as", "a b"],
        ["list"],
    ]
