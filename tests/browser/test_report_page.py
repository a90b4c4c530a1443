"""The report as people explore it, in Chromium."""

import csv
import io
import json
import re

import numpy as np
import pytest
from explored import CLASS_NAMES, REASON, explored_run, final_levels
from stores import make_run, rows_of, setting

from brusle.report import gather, page, report_page
from brusle.report.gallery import row_key
from brusle.report.scripts import TRACE_VIEW, script

expect = pytest.importorskip("playwright.sync_api", reason="make test-browser has it").expect
OUTCOMES = {"success": "fooled", "failed": "withstood"}
COLUMNS = ("image", "attack", "true class", "target", "seen as", "outcome", "queries", "pixels")
PIXELS = """([which, number]) => {
  const canvas = which.querySelectorAll("canvas")[number];
  return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
}"""
MEAN = """([which, number]) => {
  const canvas = which.querySelectorAll("canvas")[number];
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.reduce((sum, level, at) => sum + (at % 4 < 3 ? level : 0)) / (0.75 * data.length);
}"""
EVIL = (
    "</script><img src=x onerror=\"window.evil='name'\">",
    "\"'><svg onload=\"window.evil='quotes'\">",
    "\u202eexe.gpj \u05e9\u05dc\u05d5\u05dd",
    "W" * 300,
    "{{7*7}} ${window.evil='template'} `&lt;b&gt;`",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return explored_run(tmp_path_factory.mktemp("explored") / "run")


@pytest.fixture(scope="module")
def report(run):
    return written(run, run.folder / "report.html")


def written(run, path):
    path.write_text(report_page(gather(run), run), encoding="utf-8")
    return path


@pytest.fixture
def look(visits):
    """Opens a page; at the end, nothing may have left it or gone wrong."""
    made = []

    def open_page(path, hash_="", **kind):
        visit = visits(**{"viewport": {"width": 1200, "height": 900}} | kind)
        made.append(visit)
        return visit.open(f"{path.resolve().as_uri()}{hash_}")

    yield open_page
    for visit in made:
        assert visit.left == [] and visit.complaints == []


def all_rows(run):
    """What the table of all rows should hold, by key, in its order."""
    found = {}
    for one in run.settings:
        for row in run.stored(one):
            found[row_key(one, row)] = (
                row.image,
                one.title,
                CLASS_NAMES[row.label],
                "" if row.target is None else CLASS_NAMES[row.target],
                "unknown" if row.final_label < 0 else CLASS_NAMES[row.final_label],
                OUTCOMES.get(row.status, row.status),
                row.queries,
                row.pixels,
            )
    return found


def shown(tab):
    """The rows that are listed, on all pages."""
    lines = []
    while True:
        cells = tab.locator("table.rows tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )
        lines += [(*line[:6], int(line[6]), int(line[7])) for line in cells]
        if tab.locator(".pager button", has_text="Next").is_disabled():
            return lines
        tab.locator(".pager button", has_text="Next").click()


def choose(tab, name, text):
    filter_named(tab, name).select_option(text)


def filter_named(tab, name):
    exact = tab.locator("span", has_text=re.compile(f"^{name}$"))
    return tab.locator(".filters label").filter(has=exact).locator("select")


def the_row(run, kind, status="success", traced=True):
    """A row of a kind of attack with an outcome, of several improvements if it has a trace."""
    for one in run.settings:
        for row in run.stored(one):
            trace = run.trace(one, row)
            fits = trace is not None and len(trace.improvements) > 3 if traced else trace is None
            if one.attack == kind and row.status == status and row.queries and fits:
                return one, row
    raise AssertionError("there is no such row")


def test_all_rows_are_listed_and_filters_choose_among_them(run, report, look) -> None:
    tab = look(report)
    every = list(all_rows(run).values())
    assert shown(tab) == every
    for name, column in (("outcome", 5), ("true class", 2), ("target", 3), ("seen as", 4)):
        for value in {line[column] for line in every} - {""}:
            choose(tab, name, value)
            assert shown(tab) == [line for line in every if line[column] == value]
        choose(tab, name, "all")
    choose(tab, "goal", "targeted")
    assert shown(tab) == [line for line in every if line[3]]
    choose(tab, "attack", "PixelBandit")
    expected = [line for line in every if line[3] and line[1].startswith("PixelBandit")]
    assert shown(tab) == expected
    assert tab.locator(".pager .told").inner_text() == f"1 to 10 of {len(expected)} rows"
    tab.get_by_role("button", name="Show all").click()
    choose(tab, "setting", every[0][1])
    assert shown(tab) == [line for line in every if line[1] == every[0][1]]
    tab.get_by_role("button", name="Show all").click()
    assert shown(tab) == every


def test_text_is_looked_for_everywhere_also_in_reasons(run, report, look) -> None:
    tab = look(report)
    every = list(all_rows(run).values())
    field = tab.locator(".filters input")
    field.fill("IMAGE-03")
    assert shown(tab) == [line for line in every if line[0] == "image-03"]
    field.fill(REASON)
    assert [line[5] for line in shown(tab)] == ["error"]
    field.fill("no such thing")
    assert shown(tab) == []
    assert tab.locator(".pager .told").inner_text() == "No row is like that."


def test_every_column_sorts_in_both_directions(run, report, look) -> None:
    tab = look(report)
    every = list(all_rows(run).values())
    for at, name in enumerate(COLUMNS):
        button = tab.locator("table.rows thead button", has_text=name)
        head = tab.locator("table.rows thead th").nth(at)
        button.click()
        assert shown(tab) == sorted(every, key=lambda line: line[at])
        assert head.get_attribute("aria-sort") == "ascending"
        button.click()
        assert shown(tab) == sorted(every, key=lambda line: line[at], reverse=True)
        assert head.get_attribute("aria-sort") == "descending"


def test_a_link_leads_to_a_row_with_its_filters(run, report, look) -> None:
    tab = look(report)
    one, row = the_row(run, "BruSLe")
    choose(tab, "outcome", "fooled")
    tab.locator("table.rows thead button", has_text="queries").click()
    before = shown(tab)
    line = tab.locator(f'table.rows tr[data-row="{row_key(one, row)}"]')
    tab.locator(".filters input").fill(row.image)
    line.locator("td").first.click()
    heading = tab.locator(".row-view h3")
    assert heading.inner_text() == row.image
    assert f"row={row_key(one, row)}" in tab.url and "outcome=fooled" in tab.url
    tab.reload()
    assert heading.inner_text() == row.image
    assert tab.locator(".row-view .faint").first.inner_text() == all_rows(run)[row_key(one, row)][1]
    tab.locator(".filters input").fill("")
    assert shown(tab) == before
    tab.get_by_role("button", name="Close").click()
    assert not heading.is_visible() and "row=" not in tab.url
    tab.go_back()
    heading.wait_for()
    tab.goto(f"{report.as_uri()}#row={row_key(one, row)}")
    heading.wait_for()
    assert shown(tab) == list(all_rows(run).values())
    tab.goto(f"{report.as_uri()}#row=0.0&outcome=none&sort=none&page=x&setting=99")
    heading.wait_for(state="hidden")
    assert len(shown(tab)) == len(all_rows(run))


def test_an_address_of_a_section_leaves_filters_alone(run, report, look) -> None:
    tab = look(report)
    choose(tab, "outcome", "error")
    tab.locator("nav a", has_text="Summary").click()
    assert tab.url.endswith("#summary") and len(shown(tab)) == 1


def test_the_slider_goes_from_the_original_to_the_stored_image(run, report, look) -> None:
    for kind in ("BruSLe", "PixelBandit"):
        one, row = the_row(run, kind)
        trace = run.trace(one, row)
        original = run.originals.take([row.image])[0]
        tab = look(report, f"#row={row_key(one, row)}")
        view = tab.locator(".trace-view").element_handle()
        slider = tab.locator(".trace-controls input")
        slider.wait_for()
        assert painted(tab, view, 0) == levels(original)
        assert painted(tab, view, 1) == final_levels(run, one, row).flatten().tolist()
        marks = sorted(
            {one.query for one in trace.improvements} | {belief.query for belief in trace.beliefs}
        )
        assert int(slider.get_attribute("max")) >= len(marks) - 1
        for number in range(int(slider.get_attribute("max")) + 1):
            slider.fill(str(number))
            told = tab.locator(".trace-told").inner_text()
            query = int(told.split()[1])
            found = [at for at, i in enumerate(trace.improvements) if i.query <= query]
            by = trace.improvements[found[-1]]
            assert painted(tab, view, 1) == levels(trace.image(found[-1], original))
            assert told.endswith(f"seen as {CLASS_NAMES[by.labels[0]]}")
            bars = tab.locator(".trace-scores li").evaluate_all(
                "bars => bars.map(bar => [bar.title.split(' (')[0], bar.lastChild.textContent])"
            )
            expected = {CLASS_NAMES[label]: f"{score:.3f}" for label, score in by.top}
            assert dict(bars) == expected


def painted(tab, view, number):
    """The levels of a canvas, which must be opaque."""
    rgba = np.array(tab.evaluate(PIXELS, [view, number])).reshape(-1, 4)
    assert (rgba[:, 3] == 255).all()
    return rgba[:, :3].flatten().tolist()


def levels(image):
    return (image * 255).round().byte().permute(1, 2, 0).flatten().tolist()


def test_the_map_is_what_the_search_had_learned(run, report, look) -> None:
    one, row = the_row(run, "PixelBandit")
    trace = run.trace(one, row)
    tab = look(report, f"#row={row_key(one, row)}")
    tab.locator(".trace-legend").wait_for()
    view = tab.locator(".trace-view").element_handle()
    last = trace.beliefs[-1].values
    rgb = np.array(painted(tab, view, 3)).reshape(*last.shape, 3)
    limit = float(tab.locator(".trace-legend span").last.inner_text().removeprefix("\u2265 "))
    sizes = np.sort(np.abs(np.concatenate([belief.values.ravel() for belief in trace.beliefs])))
    assert limit == pytest.approx(sizes[int(0.995 * (len(sizes) - 1))], rel=0.01)
    # the more effect, the less blue; the less, the less red
    reds, blues = rgb[..., 0].astype(int), rgb[..., 2].astype(int)
    assert (blues[last > 0.2 * limit] < 255).all() and (reds[last < -0.2 * limit] < 255).all()
    assert tab.locator(".trace-panels figcaption").last.inner_text() == (
        f"effect that the search expects of each pixel, after {trace.beliefs[-1].query} queries"
    )


def test_a_row_without_a_trace_has_its_images_and_says_so(run, report, look) -> None:
    one, row = the_row(run, "SparseRS", traced=False)
    tab = look(report, f"#row={row_key(one, row)}")
    notes = tab.locator(".row-notes")
    notes.wait_for()
    assert notes.inner_text().startswith(
        "No trace of this search was kept: brusle evaluate --trace"
    )
    expect(tab.locator(".trace-view canvas").nth(1)).to_have_attribute("width", "8")
    view = tab.locator(".trace-view").element_handle()
    assert painted(tab, view, 1) == final_levels(run, one, row).flatten().tolist()
    assert not tab.locator(".trace-controls").is_visible()
    facts = dict(
        tab.locator(".row-view dl div").evaluate_all(
            "all => all.map(one => [one.children[0].textContent, one.children[1].textContent])"
        )
    )
    assert facts == {
        "true class": CLASS_NAMES[row.label],
        "seen before": CLASS_NAMES[row.clean_label],
        "seen after": CLASS_NAMES[row.final_label],
        "outcome": "fooled",
        "queries": f"{row.queries} of 40",
        "changed pixels": f"{row.pixels} of 3",
    }


def test_an_example_opens_its_row(run, report, look) -> None:
    tab = look(report)
    example = tab.locator("figure[data-row]").first
    key = example.get_attribute("data-row")
    example.locator("a", has_text="Look closer").click()
    assert tab.locator(".row-view h3").inner_text() == all_rows(run)[key][0]
    tab.locator(".row-view h3").press("Escape")
    example.locator("img").nth(1).click()
    assert f"row={key}" in tab.url


def test_the_keyboard_is_enough(run, report, look) -> None:
    tab = look(report)
    first = tab.locator("table.rows tbody a").first
    first.focus()
    tab.keyboard.press("Enter")
    heading = tab.locator(".row-view h3")
    assert tab.evaluate("document.activeElement.tagName") == "H3" and heading.is_visible()
    tab.get_by_role("button", name="Next row").press("Enter")
    second = list(all_rows(run).values())[1]
    assert heading.inner_text() == second[0]
    slider = tab.locator(".trace-controls input")
    slider.wait_for()
    slider.press("Home")
    assert slider.get_attribute("aria-valuetext").startswith("query 0 of ")
    slider.press("ArrowRight")
    assert slider.input_value() == "1"
    tab.keyboard.press("Escape")
    assert not heading.is_visible()
    assert tab.evaluate("document.activeElement.textContent") == second[0]


def test_playing_ends_at_the_end(run, report, look) -> None:
    one, row = the_row(run, "PixelBandit")
    tab = look(report, f"#row={row_key(one, row)}")
    slider = tab.locator(".trace-controls input")
    slider.fill("0")
    button = tab.locator(".trace-controls button")
    button.click()
    assert button.inner_text() == "Pause"
    expect(button).to_have_text("Play", timeout=20_000)
    assert slider.input_value() == slider.get_attribute("max")


def test_values_on_curves_are_those_of_the_json(run, report, look) -> None:
    told = json.loads(json.dumps(gather(run).as_dict()))
    rates = {
        (one["goal"], one["attack"], int(mark)): rate
        for one in told["settings"]
        for mark, rate in one["asr_within"].items()
    }
    tab = look(report)
    count = 0
    for number, goal in enumerate(("untargeted", "targeted")):
        chart = tab.locator("svg[data-chart]").nth(number)
        box, values = chart.bounding_box(), tab.locator(".values").nth(number)
        assert not values.is_visible()
        for mark in (0, 5, 10, 20, 40):
            x = (44 + (460 - 44 - 12) * mark / 40) / 460 * box["width"]
            chart.hover(position={"x": x, "y": box["height"] / 2})
            assert values.locator("p").first.inner_text() == f"within {mark} queries"
            for line in values.locator("li").all():
                name, text = line.locator("span").inner_text(), line.locator("b").inner_text()
                if mark:
                    rate = rates[goal, name, mark]
                    low, high = rate["low"], rate["high"]
                    ends = f"[{100 * low:.0f}, {100 * high:.0f}]"
                    assert text == f"{100 * rate['value']:.1f} % {ends}"
                    count += 1
    assert count == 4 * (3 + 2)
    tab.mouse.move(5, 5)
    assert not values.is_visible()
    chart.focus()
    chart.press("End")
    assert values.locator("p").first.inner_text() == "within 40 queries"
    chart.press("ArrowLeft")
    assert values.locator("p").first.inner_text() == "within 39 queries"
    chart.press("Escape")
    assert not values.is_visible()


def test_a_finger_reads_values_too(report, look) -> None:
    tab = look(report, has_touch=True, viewport={"width": 390, "height": 800})
    chart = tab.locator("svg[data-chart]").first
    chart.tap()
    assert tab.locator(".values").first.is_visible()
    tab.locator("h1").tap()
    assert not tab.locator(".values").first.is_visible()


def csv_of(tab, act):
    with tab.expect_download() as download:
        act()
    text = download.value.path().read_bytes().decode()
    return download.value.suggested_filename, list(csv.reader(io.StringIO(text, newline="")))


def set_clipboard(tab, script: str) -> None:
    tab.evaluate(
        f"Object.defineProperty(navigator, 'clipboard', {{ value: {script}, configurable: true }})"
    )


def test_every_table_is_copied_as_it_is(run, report, look) -> None:
    tab = look(report)
    # browsers let a page save few files in a row, so most are looked at where they are handed over
    set_clipboard(tab, "{ writeText: async (text) => { window.copied = text; } }")
    tables = tab.locator("main table:not(.rows)")
    buttons = tab.locator("main .scroll .tools button")
    assert tables.count() == buttons.count() > 8
    for at in range(tables.count()):
        buttons.nth(at).click()
        lines = list(csv.reader(io.StringIO(tab.evaluate("window.copied"), newline="")))
        cells = tables.nth(at).evaluate(
            "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        assert [[text.removeprefix("'") for text in line] for line in lines] == cells
    set_clipboard(tab, "undefined")
    choose(tab, "outcome", "fooled")
    button = tab.get_by_role("button", name="Copy these rows as CSV")
    name, lines = csv_of(tab, button.click)
    expected = [line for line in all_rows(run).values() if line[5] == "fooled"]
    assert [tuple(line) for line in lines[1:]] == [tuple(map(str, line)) for line in expected]
    assert name == "rows.csv" and tab.get_by_text("saved as rows.csv").is_visible()


def test_the_clipboard_is_taken_where_it_is_open(report, look) -> None:
    tab = look(report, permissions=["clipboard-read", "clipboard-write"])
    tab.bring_to_front()
    tab.locator("#summary .tools button").click()
    tab.get_by_text("copied", exact=True).wait_for()
    lines = list(csv.reader(io.StringIO(tab.evaluate("navigator.clipboard.readText()"))))
    head = tab.locator("#summary thead th").all_inner_texts()
    assert lines[0] == head and len(lines) == 6


def test_no_cell_is_a_formula(tmp_path, look) -> None:
    run = make_run(tmp_path, [(setting('=HYPERLINK("x")'), rows_of([10] * 12, 8))])
    tab = look(written(run, tmp_path / "report.html"))
    set_clipboard(tab, "undefined")
    name, lines = csv_of(tab, tab.locator("#summary .tools button").click)
    assert name == "summary-1.csv"
    assert lines[1][0] == '\'=HYPERLINK("x")'
    assert not [cell for line in lines for cell in line if cell.startswith(("=", "@"))]


def test_without_scripts_all_is_there_that_was_there_before(run, report, look) -> None:
    tab = look(report, java_script_enabled=False)
    headings = tab.locator("h2:visible").all_inner_texts()
    assert "All rows" not in headings and {"Summary", "Examples"} <= set(headings)
    assert not tab.get_by_role("button").count() and not tab.locator("canvas").count()
    assert not tab.locator("nav a[href='#rows']").is_visible()
    assert tab.locator("figure img").count() >= 3 and tab.locator("svg path.line").count() == 5
    with_scripts = look(report)
    for section in ("summary", "curves", "grid", "classes", "comparison", "errors", "reading"):
        text = with_scripts.locator(f"#{section}").inner_text().replace("Copy as CSV\n", "")
        plain = tab.locator(f"#{section}").inner_text()
        assert text.replace("Copy as CSV", "").split() == plain.split()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(run, report, look, scheme) -> None:
    one, row = the_row(run, "BruSLe")
    size = {"width": 390, "height": 800}
    for address in ("", f"#row={row_key(one, row)}"):
        tab = look(report, address, viewport=size, color_scheme=scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") == 390


def test_pictures_are_dark_where_the_page_is(run, report, look) -> None:
    one, row = the_row(run, "PixelBandit")
    address = f"#row={row_key(one, row)}"
    grounds = {}
    for scheme in ("light", "dark"):
        tab = look(report, address, color_scheme=scheme)
        tab.locator(".trace-legend").wait_for()
        view = tab.locator(".trace-view").element_handle()
        grounds[scheme] = [tab.evaluate(MEAN, [view, panel]) for panel in (2, 3)]
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 22, 26)"
        )
    assert min(grounds["light"]) > 180 and max(grounds["dark"]) < 80
    tab.emulate_media(media="print")
    tab.evaluate("new Promise(requestAnimationFrame)")
    assert tab.evaluate(MEAN, [view, 3]) == grounds["light"][1]


def test_print_has_no_controls_and_the_row_that_is_open(run, report, look) -> None:
    one, row = the_row(run, "BruSLe")
    tab = look(report, f"#row={row_key(one, row)}")
    tab.locator(".trace-controls").wait_for()
    tab.emulate_media(media="print")
    for hidden in ("button", "select", "input", "table.rows", "nav"):
        assert not [one for one in tab.locator(hidden).all() if one.is_visible()]
    assert tab.locator(".row-view h3").is_visible()
    assert tab.locator(".trace-panels canvas").first.is_visible()
    assert tab.pdf()[:5] == b"%PDF-"
    closed = look(report)
    closed.emulate_media(media="print")
    assert not closed.locator("#rows h2").is_visible() and closed.locator("#summary").is_visible()


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    names = tuple(f"{EVIL[at % 5]}{at}" for at in range(6))
    return explored_run(tmp_path_factory.mktemp("evil") / "run", names, EVIL)


def test_hostile_names_stay_text(evil, look) -> None:
    tab = look(written(evil, evil.folder / "report.html"), viewport={"width": 390, "height": 800})
    tab.on("dialog", lambda dialog: pytest.fail(dialog.message))
    safe = [name.replace("\u202e", "\\u202e") for name in EVIL]
    seen = {tab.locator("table.rows tbody th").nth(at).inner_text() for at in range(6)}
    assert seen == {f"{safe[at % 5]}{at}" for at in range(6)}
    options = filter_named(tab, "true class").locator("option")
    assert set(options.all_inner_texts()) <= {"all", *safe}
    for one in evil.settings[:2]:
        for row in evil.stored(one):
            tab.evaluate("hash => { location.hash = hash; }", f"row={row_key(one, row)}")
            name = f"{safe[int(row.image[-1]) % 5]}{row.image[-1]}"
            tab.locator(".row-view h3", has_text=name).wait_for()
    tab.locator("svg[data-chart]").first.hover()
    assert tab.evaluate("window.evil === undefined")
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    assert not tab.locator("img[src='x'], svg[onload], section script").count()


def test_the_page_runs_its_own_scripts_alone(report, visits) -> None:
    tab = visits().open(report)
    blocked = """() => {
      const script = document.createElement("script");
      script.textContent = "window.evil = 1";
      document.body.append(script);
      const image = document.createElement("img");
      image.setAttribute("onerror", "window.evil = 2");
      image.src = "data:,";
      document.body.append(image);
      return new Promise((done) => { image.addEventListener("error", () => done(window.evil)); });
    }"""
    assert tab.evaluate(blocked) is None


def test_what_was_left_out_is_told_row_by_row(run, look, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(page, "_LARGEST", 0)
    path = written(run, tmp_path / "report.html")
    one, row = the_row(run, "BruSLe")
    tab = look(path, f"#row={row_key(one, row)}")
    notes = tab.locator(".row-notes p").all_inner_texts()
    assert len(notes) == 2
    assert all("would be too large: brusle explain RUN --image NAME" in note for note in notes)
    assert not tab.locator(".row-view canvas").count()


def test_without_originals_a_trace_shows_what_was_changed(run, look, tmp_path) -> None:
    from brusle.evaluation.storing.runs import Run

    path = written(Run.open(run.folder), tmp_path / "report.html")
    one, row = the_row(run, "PixelBandit")
    tab = look(path, f"#row={row_key(one, row)}")
    tab.locator(".trace-controls").wait_for()
    assert "could not be read" in tab.locator(".row-notes").inner_text()
    shown_ = [figure.is_visible() for figure in tab.locator(".trace-panels figure").all()]
    assert shown_ == [False, False, True, True]
    caption = tab.locator(".trace-panels figcaption").nth(2).inner_text()
    assert caption == f"{row.pixels} changed pixel{'s' * (row.pixels != 1)}"


def test_many_rows_come_page_by_page(tmp_path, look) -> None:
    run = make_run(tmp_path, [(setting(), rows_of(range(1, 71), 60))])
    tab = look(written(run, tmp_path / "report.html"))
    told, lines = tab.locator(".pager .told"), tab.locator("table.rows tbody tr")
    assert told.inner_text() == "1 to 50 of 130 rows" and lines.count() == 50
    tab.locator(".pager button", has_text="Next").click()
    tab.locator(".pager button", has_text="Next").click()
    assert told.inner_text() == "101 to 130 of 130 rows" and lines.count() == 30
    assert "page=3" in tab.url
    tab.reload()
    assert told.inner_text() == "101 to 130 of 130 rows"
    tab.locator(".pager button", has_text="Previous").click()
    assert told.inner_text() == "51 to 100 of 130 rows"
    tab.locator("table.rows tbody tr a").last.click()
    tab.get_by_role("button", name="Next row").click()
    assert told.inner_text() == "101 to 130 of 130 rows"


LIVE = """([trace, options, original]) => {
  const element = document.createElement("div");
  document.body.append(element);
  const levels = Uint8Array.from(original);
  const view = (window.view = brusleTraceView(element, { ...options, original: levels }));
  trace.beliefs.forEach((belief) => view.belief(belief, trace.meaning));
  trace.queries.forEach((query, at) => view.point(query, trace.losses[at]));
  trace.improvements.forEach((improvement) => view.append(improvement));
  return view.ready.then(() => new Promise(requestAnimationFrame)).then(() => view.length);
}"""


def test_a_search_that_comes_piece_by_piece_is_the_same(run, look, tmp_path) -> None:
    one, row = the_row(run, "PixelBandit")
    trace = run.trace(one, row)
    original = run.originals.take([row.image])[0]
    blank = tmp_path / "blank.html"
    scripts = "".join(f"<script>{script(name)}</script>" for name in TRACE_VIEW)
    blank.write_text(f"<!doctype html><meta charset=utf-8><body>{scripts}")
    tab = look(blank)
    options = {"shape": list(run.shape), "names": CLASS_NAMES, "label": row.label, "target": None}
    whole = json.loads(json.dumps(trace.as_dict()))
    length = tab.evaluate(LIVE, [whole, options, levels(original)])
    assert length == tab.evaluate("trace => { view.setTrace(trace); return view.length; }", whole)
    tab.evaluate("new Promise(requestAnimationFrame)")
    view = tab.locator(".trace-view").element_handle()
    assert painted(tab, view, 1) == final_levels(run, one, row).flatten().tolist()
    tab.evaluate("view.show(0)")
    assert painted(tab, view, 1) == levels(original)
    assert tab.evaluate("view.moment(0)") == {"query": 0, "improvement": 0, "belief": -1}
    tab.evaluate("view.remove()")
    assert not tab.locator("canvas").count()
