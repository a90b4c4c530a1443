"""The studio as people use it, in Chromium."""

import base64
import io
import re

import numpy as np
import pytest
from models import integer_model
from PIL import Image
from stores import ABOUT, make_run, row, setting
from studios import CLASSES, SHAPE, Asker, Gate, toy, toy_data

import brusle
from brusle.attacks import make
from brusle.evaluation.record import About
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.report.single import told
from brusle.studio import Studio

expect = pytest.importorskip("playwright.sync_api", reason="make test-browser has it").expect
PATIENCE = 20_000  # milliseconds, where something must happen in the end
PIXELS = """(canvas) => {
  const pen = canvas.getContext("2d");
  return [...pen.getImageData(0, 0, canvas.width, canvas.height).data];
}"""
DROP = """([content, name]) => {
  const bytes = Uint8Array.from(atob(content), (byte) => byte.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type: "image/png" }));
  const place = document.getElementById("drop");
  for (const kind of ["dragover", "drop"]) {
    const how = { dataTransfer: carried, bubbles: true, cancelable: true };
    place.dispatchEvent(new DragEvent(kind, how));
  }
}"""
TOLD = re.compile(r"/api/attacks/\d+$")  # the studio has heard what an attack is to do
EVIL = "<img src=x onerror=\"window.evil='name'\">\u202e'\""
SHOWN = EVIL.replace("\u202e", "\\u202e")


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def look(visits):
    """Opens a studio's page; at the end, nothing may have left it or gone wrong."""
    made = []

    def open_page(studio, ready=True, **kind):
        visit = visits(**{"viewport": {"width": 1300, "height": 900}} | kind)
        made.append(visit)
        page = visit.open(studio.url)
        if ready:
            expect(page.locator("#start")).to_be_enabled(timeout=PATIENCE)
        return page

    yield open_page
    for visit in made:
        assert visit.left == [] and visit.complaints == []


@pytest.fixture(scope="module")
def studio():
    with Studio([toy()], [toy_data()]) as studio:
        yield studio


@pytest.fixture
def gated():
    gate = Gate(integer_model(SHAPE, len(CLASSES)).function)
    with Studio([toy(gate)], [toy_data()]) as studio:
        try:
            yield studio, gate
        finally:
            gate.open()


def levels(page, selector: str) -> np.ndarray:
    """What a canvas shows, ``(8, 8, 3)``."""
    drawn = np.array(page.locator(selector).evaluate(PIXELS), np.uint8)
    return drawn.reshape(*SHAPE[1:], 4)[:, :, :3]


def as_levels(image) -> np.ndarray:
    return (image * 255).round().byte().permute(1, 2, 0).numpy()


def attacked(name: str, row: int, pixels: int, queries: int, seed: int, target=None):
    data = toy_data()
    targets = None if target is None else [target]
    picked = slice(row, row + 1)
    return make(name, pixels, queries)(
        toy(), data.images[picked], data.labels[picked], targets, seed=seed
    )


def fill(page, **values) -> None:
    for name, value in values.items():
        field = page.locator(f"#{name.replace('_', '-')}")
        if field.evaluate("(field) => field.tagName") == "SELECT":
            field.select_option(str(value))
        else:
            field.fill(str(value))


def test_an_attack_from_click_to_success(look, studio) -> None:
    page = look(studio)
    page.get_by_role("button", name="toy-3,").click()
    expect(page.locator("#chosen-about")).to_contain_text("toy-3")
    original = toy_data().images[3]
    assert np.array_equal(levels(page, "#preview"), as_levels(original))
    target = next(c for c in range(5) if c != int(toy_data().labels[3]))
    fill(page, attack_name="pixel-bandit", pixels=6, queries=200, seed=4, target=target, pace=0)
    expect(page.locator("#start")).to_be_enabled()
    page.get_by_role("button", name="Start").click()
    verdict = page.get_by_role("article").get_by_role("status")
    expect(verdict).to_contain_text("success", timeout=PATIENCE)
    result = attacked("pixel-bandit", 3, 6, 200, 4, target)
    assert verdict.inner_text() == f"success {told(result, CLASSES)}"
    queries = int(result.queries[0])
    expect(page.locator(".lane-count")).to_have_text(f"query {queries} of 200")
    expect(page.locator(".trace-told")).to_contain_text(f"query {queries} of {queries}")
    assert np.array_equal(levels(page, ".lane canvas >> nth=0"), as_levels(original))
    assert np.array_equal(levels(page, ".lane canvas >> nth=1"), as_levels(result.images[0]))
    booked = ", ".join(f"{n} {what}" for what, n in result.ledger.row(0).items() if n)
    expect(page.locator(".lane-end")).to_contain_text(f"booked: {booked}")
    page.locator(".trace-controls input").press("Home")  # back to the beginning of the search
    expect(page.locator(".trace-told")).to_contain_text("query 0 of")
    assert np.array_equal(levels(page, ".lane canvas >> nth=1"), as_levels(original))
    with page.expect_download() as saved:
        page.get_by_text("toy-3-adversarial.png").click()
    file = np.asarray(Image.open(saved.value.path()))
    assert np.array_equal(file, as_levels(result.images[0]))
    expect(page.locator("#start")).to_be_enabled()  # for the next


def test_stop_one_query_go_on_and_end(look, gated) -> None:
    studio, gate = gated
    page = look(studio)
    fill(page, pixels=1, queries=40, pace=0)
    start, pause = page.locator("#start"), page.locator("#pause")
    page.get_by_role("button", name="Start").click()
    expect(pause).to_be_enabled()
    expect(start).to_be_disabled()
    with page.expect_response(TOLD):
        pause.click()
    gate.let(2)  # the clean image, and the first query
    expect(page.locator(".lane-count")).to_have_text("query 1 of 40, paused", timeout=PATIENCE)
    expect(pause).to_have_text("Go on")
    gate.let(2)
    page.get_by_role("button", name="One query").click()
    expect(page.locator(".lane-count")).to_have_text("query 2 of 40, paused")
    assert gate.answered == 3
    pause.click()
    expect(pause).to_have_text("Pause")
    expect(page.locator(".lane-count")).to_have_text("query 3 of 40")
    with page.expect_response(TOLD):
        page.get_by_role("button", name="End").click()
    gate.let(1)
    expect(page.locator(".lane-told")).to_have_text("ended after 4 queries", timeout=PATIENCE)
    expect(start).to_be_enabled()
    expect(pause).to_be_disabled()
    gate.open()
    start.click()  # and once more, from the beginning
    expect(page.locator(".lane-told")).to_contain_text("quer", timeout=PATIENCE)
    result = attacked("brusle", 0, 1, 40, 0)
    expect(page.locator(".lane-told")).to_have_text(f"{result.status[0]} {told(result, CLASSES)}")


def test_two_attacks_side_by_side(look, studio) -> None:
    page = look(studio)
    fill(page, other_name="sparse-rs", other_options="loss=margin", pixels=3, queries=30, pace=0)
    page.get_by_role("button", name="Start").click()
    lanes = page.get_by_role("article")
    expect(lanes).to_have_count(2)
    for at, name in enumerate(("brusle", "sparse-rs:loss=margin")):
        result = attacked(name, 0, 3, 30, 0)
        expect(lanes.nth(at).get_by_role("status")).to_have_text(
            f"{result.status[0]} {told(result, CLASSES)}", timeout=PATIENCE
        )
        expect(lanes.nth(at).get_by_role("heading")).to_have_text(result.attack.label)
        drawn = levels(page, f".lane >> nth={at} >> canvas >> nth=1")
        assert np.array_equal(drawn, as_levels(result.images[0]))
    boxes = [lanes.nth(at).bounding_box() for at in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]


def test_an_image_is_dropped_or_chosen_and_framed(look, studio, tmp_path) -> None:
    page = look(studio)
    file = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    Image.fromarray(noise).save(file, "PNG")
    page.evaluate(DROP, [base64.b64encode(file.getvalue()).decode(), EVIL])
    said = page.locator("#chosen-about")
    expect(said).to_contain_text("resized or cropped from 20 x 30 to 8 x 8 pixels")
    expect(said).to_contain_text(SHOWN)
    assert page.locator('#thumbnails [aria-pressed="true"]').count() == 0
    fill(page, pixels=2, queries=10, pace=0)
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".lane-told")).not_to_be_empty(timeout=PATIENCE)
    original = levels(page, ".lane canvas >> nth=0")
    assert np.array_equal(original, levels(page, "#preview"))
    (tmp_path / "other.png").write_bytes(file.getvalue())
    page.locator("#file").set_input_files(tmp_path / "other.png")
    expect(said).to_contain_text("other.png")
    assert np.array_equal(levels(page, "#preview"), original)
    assert page.evaluate("window.evil") is None


def test_what_cannot_be_read_is_said_and_cannot_be_started(visits, studio) -> None:
    visit = visits()
    page = visit.open(studio.url)
    expect(page.locator("#start")).to_be_enabled(timeout=PATIENCE)
    page.evaluate(DROP, [base64.b64encode(b"nonsense").decode(), "cat.png"])
    expect(page.locator("#chosen-about")).to_contain_text("cat.png is no image that can be read")
    expect(page.locator("#start")).to_be_disabled()
    page.get_by_role("button", name="toy-0,").click()
    expect(page.locator("#start")).to_be_enabled()
    fill(page, attack_options="nonsense=1")
    page.locator("#start").click()
    expect(page.locator(".lane-told")).to_contain_text("has no option 'nonsense'")
    assert visit.left == []
    assert all("Failed to load resource" in said for said in visit.complaints)  # the refusals


def test_victims_are_exchanged_and_images_framed_anew(look) -> None:
    with Studio() as studio:
        page = look(studio)
        page.get_by_role("button", name="test-0001,").click()
        chosen = "test-0001: ship, 32 x 32 pixels"
        expect(page.locator("#chosen-about")).to_have_text(chosen)
        page.locator("#victim").select_option(label="zoo:cifar10-vit")
        expect(page.locator("#victim-about")).to_contain_text("vision transformer")
        expect(page.locator("#start")).to_be_enabled(timeout=PATIENCE)
        expect(page.locator("#chosen-about")).to_have_text(chosen)
        expect(page.locator("#target option")).to_have_count(11)
        page.get_by_role("button", name="More").click()
        expect(page.locator("#thumbnails-about")).to_have_text("25 to 48 of 200")
        fill(page, queries=1, pace=0)
        page.locator("#start").click()
        expect(page.locator(".lane-end pre")).to_contain_text("--victim zoo:cifar10-vit")


def test_a_run_being_written_is_seen_to_move(look, studio, somewhere) -> None:
    with Studio() as studio:
        page = look(studio)
        with Store.write(somewhere / "runs" / "new") as store:
            store.write_about(About(**ABOUT))
            known = store.add_setting(setting(problems=3))
            page.get_by_role("link", name="Runs").click()
            page.get_by_role("link", name="runs/new").click()
            state = page.locator(".run-state")
            expect(state).to_have_text("a run is writing", timeout=PATIENCE)
            for number, status in enumerate(("success", "failed", "error"), 1):
                store.add_rows(known.number, [row(number, status)])
                expect(page.locator(".run-done")).to_contain_text(f"{number}/3", timeout=PATIENCE)
                expect(page.locator("table.rows tbody tr")).to_have_count(number)
                assert page.locator(".run-done progress").evaluate("(bar) => bar.value") == number
            expect(page.locator("table.rows tbody")).to_contain_text("error")
            expect(page.locator("#run")).to_contain_text("50.0 [9, 91]")  # 1 of 2
        expect(state).to_have_text("all is stored", timeout=PATIENCE)


def test_a_row_with_a_trace_can_be_replayed(look, somewhere) -> None:
    data = toy_data(4)
    images = np.stack([as_levels(image).transpose(2, 0, 1) for image in data.images])
    np.savez("toys.npz", images=images, labels=data.labels.numpy())
    attacks = [brusle.attacks.BruSLe(pixels=2, queries=20)]
    options = {"goal": "untargeted", "out": "runs/traced", "trace": True}
    brusle.evaluate(victim=toy(), data="npz:toys.npz", attacks=attacks, **options)
    run = Run.open("runs/traced")
    (result,) = run.results
    with Studio() as studio:
        page = look(studio)
        page.goto(f"{page.url.partition('#')[0]}#runs")
        page.get_by_role("link", name="runs/traced").click()
        for at, image in enumerate(result.images):
            page.locator("table.rows tbody tr").nth(at).get_by_role("button").click()
            name = run.stored(run.settings[0])[at].image
            expect(page.locator("#run .lane h3")).to_have_text(name)
            assert np.array_equal(levels(page, "#run canvas >> nth=1"), as_levels(image))
        page.locator("#run .trace-controls input").press("Home")
        expect(page.locator("#run .trace-told")).to_contain_text("query 0 of")
        assert np.array_equal(levels(page, "#run canvas >> nth=1"), as_levels(data.images[at]))


def test_a_folder_elsewhere_is_refused_in_a_line(visits, somewhere) -> None:
    make_run(somewhere / "outside", [(setting(), [row(1)])])
    make_run(somewhere / "runs" / "inside", [(setting(), [row(1)])])
    with Studio() as studio:
        visit = visits()
        page = visit.open(studio.url)
        page.get_by_role("link", name="Runs").click()
        for path in ("outside", "/etc", "runs/../outside"):
            page.locator("#runs-path").fill(path)
            page.get_by_role("button", name="Open").click()
            trouble = page.locator("#runs-trouble")
            expect(trouble).to_contain_text(f"{path} is no run folder that this page may open")
        page.locator("#runs-path").fill("runs/inside")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("#run h2")).to_have_text("runs/inside")
        expect(trouble).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_lights(look, somewhere, scheme) -> None:
    rows = [row(number) for number in range(60)]
    make_run(somewhere / "runs" / ("long-" * 20), [(setting("x" * 80), rows)])
    with Studio([toy()], [toy_data()]) as studio:
        page = look(studio, viewport={"width": 390, "height": 800}, color_scheme=scheme)
        fill(page, other_name="pixel-bandit", pixels=3, queries=20, pace=0)
        page.locator("#start").click()
        for at in (0, 1):
            expect(page.locator(".lane-told").nth(at)).not_to_be_empty(timeout=PATIENCE)
        wide = "document.documentElement.scrollWidth"
        assert page.evaluate(wide) <= 390
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 384
        assert dark == (scheme == "dark")
        for name in ("#start", "#pause", "#end", "#pace"):  # always at hand
            box = page.locator(name).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] < 800
        page.get_by_role("link", name="Runs").click()
        page.locator("#runs-list a").first.click()
        expect(page.locator("table.rows tbody tr")).to_have_count(50)
        page.get_by_role("button", name="More").click()
        expect(page.locator("table.rows tbody tr")).to_have_count(10)
        assert page.evaluate(wide) <= 390


def test_hostile_names_stay_text(look, somewhere) -> None:
    label = int(toy_data().labels[0])
    names = (*CLASSES[:label], EVIL, *CLASSES[label + 1 :])
    about = {"victim": EVIL, "data": EVIL, "classes": [EVIL, "b", "c"], "warnings": {"x": EVIL}}
    bad = row(3, "error", image=EVIL, error=EVIL, pixels=0)
    make_run(somewhere / "runs" / "evil<b>", [(setting(EVIL), [bad])], **about)
    with Studio([toy(name=EVIL, classes=names)], [toy_data(classes=names)]) as studio:
        page = look(studio)
        expect(page.locator("#victim option").first).to_have_text(SHOWN)
        expect(page.locator("#target option").nth(label + 1)).to_have_text(SHOWN)
        page.get_by_role("button", name="toy-0,").click()
        expect(page.locator("#chosen-about")).to_contain_text(SHOWN)
        fill(page, pixels=1, queries=5, pace=0)
        expect(page.locator("#start")).to_be_enabled()
        page.locator("#start").click()
        expect(page.locator(".lane-told")).not_to_be_empty(timeout=PATIENCE)
        expect(page.locator(".trace-scores li.true")).to_contain_text(SHOWN)
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("link", name="runs/evil<b>").click()
        expect(page.locator("#run h2")).to_have_text("runs/evil<b>")
        expect(page.locator("#run .notice")).to_have_text(SHOWN)
        page.locator("table.rows tbody tr").get_by_role("button").click()
        expect(page.locator("#run .lane h3")).to_have_text(SHOWN)
        assert page.evaluate("window.evil") is None
        assert page.locator("img[onerror]").count() == 0


def test_the_token_leaves_the_address_and_stays_with_the_tab(visits, studio) -> None:
    visit = visits()
    page = visit.open(studio.url)
    expect(page.locator("#start")).to_be_enabled(timeout=PATIENCE)
    assert studio.token not in page.url and page.url.endswith("/#attack")
    page.reload()
    expect(page.locator("#start")).to_be_enabled(timeout=PATIENCE)
    other = visit.open(f"http://127.0.0.1:{studio.port}/")  # a tab that nobody gave the token
    expect(other.locator("#trouble")).to_contain_text("open the address that brusle printed")
    stranger = visits()
    page = stranger.open(f"http://127.0.0.1:{studio.port}/")
    assert "the token is missing or wrong" in page.content() and "victim" not in page.content()
    assert visit.left == stranger.left == []


def test_an_attack_ends_when_the_page_is_closed(look, gated) -> None:
    studio, gate = gated
    page = look(studio)
    fill(page, other_name="pixel-bandit", queries=400)
    page.locator("#start").click()
    expect(page.locator("#pause")).to_be_enabled()
    page.close()
    gate.open()
    with Asker(studio) as asker:  # there is room again
        image = asker.choose()
        assert asker.run(image, pixels=1, queries=2)["how"] == "finished"


def test_it_can_be_used_by_keyboard_alone(look, studio) -> None:
    page = look(studio)
    page.locator("#queries").focus()
    fill(page, queries=5, pace=0)
    page.keyboard.press("Enter")  # a form is sent so
    expect(page.locator(".lane-told")).not_to_be_empty(timeout=PATIENCE)
    page.locator("#thumbnails button").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#thumbnails button").nth(1)).to_have_attribute("aria-pressed", "true")
    page.locator("#thumbnails-back").focus()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"attack-name", "attack-options", "other-name", "target", "pixels", "start"} <= reached
