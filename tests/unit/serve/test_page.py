"""The page in headless Chromium: editing, watching, comparing, what-if moves, files, errors."""

from __future__ import annotations

import json
import shutil
import sys

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from typer.testing import CliRunner

from rl4co.cli import app
from tests.unit.serve.server import MODELS, Server

sync_api = pytest.importorskip("playwright.sync_api")
NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the server of the tests needs Linux"),
]

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
#: Milliseconds; the first requests wait for the import of the library.
TIMEOUT = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api.expect.set_options(timeout=TIMEOUT)
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def faults() -> Iterator[list[str]]:
    """Errors in the console and requests to other servers; there are none at the end."""
    messages: list[str] = []
    yield messages
    assert messages == []


def open_page(browser: Any, url: str, faults: list[str], **options: Any) -> Any:
    """A new page; what goes wrong in it is added to `faults`."""
    page = browser.new_page(**options)
    page.set_default_timeout(TIMEOUT)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda text: faults.append(text.text) if text.type == "error" else None)
    page.on("request", lambda sent: None if sent.url.startswith(url) else watch(sent, faults))
    page.goto(url)
    return page


def watch(request: Any, faults: list[str]) -> None:
    if not request.url.startswith(("blob:", "data:")):
        faults.append(f"request of {request.url}")


@pytest.fixture
def page(browser: Any, server: Server, faults: list[str]) -> Iterator[Any]:
    opened = open_page(browser, server.url, faults, viewport={"width": 1300, "height": 900})
    opened.locator("#editor .node").first.wait_for()
    yield opened
    opened.close()


def draw(page: Any, problem: str, size: int) -> None:
    """Draws a random instance."""
    with page.expect_response("**/api/instances/random"):
        page.select_option("#problem", problem)
    page.fill("#size", str(size))
    page.click("#random [type=submit]")
    has_depot = problem not in ("tsp", "jssp", "flp")
    sync_api.expect(page.locator("#table tbody tr")).to_have_count(size + has_depot)


def solve(page: Any) -> None:
    """Solves and waits for the end."""
    page.fill("#max_runtime", "1")
    page.click("#solve-button")
    page.locator("#comparison .links button").first.wait_for()


def position(page: Any) -> tuple[int, int]:
    """The step that is shown, and the last one."""
    here, _, last = page.inner_text("output.count").partition("/")
    return int(here), int(last)


def scrub(page: Any, step: int) -> None:
    page.locator(".track input").fill(str(step))


@pytest.mark.parametrize(
    ("problem", "size", "shape", "count"),
    [
        ("tsp", 6, ".route", 1),
        ("pdp", 6, ".route", 1),
        ("jssp", 3, ".bar", 9),
        ("flp", 8, ".spoke", 8),
    ],
)
def test_solution_is_drawn(page: Any, problem: str, size: int, shape: str, count: int):
    draw(page, problem, size)
    if problem == "jssp":
        page.fill("#machines", "3")
        page.click("#random [type=submit]")
        sync_api.expect(page.locator("#table thead th")).to_have_count(5)
    solve(page)
    page.click("[aria-label='To the end']")
    sync_api.expect(page.locator(f"#player {shape}")).to_have_count(count)
    assert page.locator("#comparison tr").count() == 1


def test_construction_beside_a_solver(page: Any):
    """Both methods are shown; the candidates are those of the step; the best one has no gap."""
    draw(page, "cvrp", 8)
    assert page.locator("#methods .method-name").input_value() == f"model:{MODELS['cvrp']}"
    page.click("#add-method")
    page.select_option(".method-name >> nth=1", "solver:pyvrp")
    solve(page)
    assert page.locator(".pane").count() == 2
    rows = page.locator("#comparison tr")
    assert "0.00 %" in rows.nth(1).inner_text() and rows.count() == 2
    scrub(page, 0)
    candidates = page.locator(".pane >> nth=0").locator(".candidates li")
    assert 1 < candidates.count() <= 6
    chances = page.locator(".pane >> nth=0").locator(".candidates .value").all_inner_texts()
    assert chances == sorted(chances, key=lambda text: -int(text.strip("< %")))
    assert page.locator(".pane >> nth=0").locator(".route").count() == 0
    assert page.locator(".pane >> nth=1").locator(".route").count() >= 1
    page.click("[aria-label='To the end']")
    assert position(page)[0] == position(page)[1] >= 8
    shown = float(page.locator(".pane >> nth=1").locator(".fact b").inner_text())
    assert shown == pytest.approx(float(rows.nth(1).locator("td").first.inner_text()), abs=0.01)
    assert page.locator("#curve .dot").count() >= 2
    with page.expect_download() as download:
        rows.first.locator("button", has_text="CSV").click()
    assert Path(download.value.path()).read_text().startswith("route,position,node")


def test_playback_by_mouse_and_keys(page: Any):
    draw(page, "tsp", 8)
    solve(page)
    page.locator(".timeline select").select_option("8")
    page.locator(".transport [aria-label=Pause], .transport [aria-label=Play]").first.wait_for()
    if page.locator("[aria-label=Pause]").count():
        page.click("[aria-label=Pause]")
    page.click("[aria-label='To the start']")
    page.click("[aria-label=Play]")
    sync_api.expect(page.locator("output.count")).to_have_text("8 / 8")
    page.locator("[aria-label=Play]").wait_for()  # it stops at the end
    scrub(page, 3)
    assert position(page) == (3, 8)
    player = page.locator("#player .node[tabindex='0']").first
    player.focus()
    page.locator(".player .transport [aria-label='One step forward']").press("Enter")
    assert position(page) == (4, 8)
    page.locator(".player .transport [aria-label='One step forward']").press("Home")
    assert position(page) == (0, 8)
    page.keyboard.press("ArrowRight")
    assert position(page) == (1, 8)
    draw(page, "tsp", 5)  # fewer nodes than the hidden drawing shows
    sync_api.expect(page.locator("#editor .node:visible")).to_have_count(5)


def test_what_if(page: Any):
    """The policy continues after a forced move, and without a forbidden one."""
    draw(page, "tsp", 8)
    solve(page)
    scrub(page, 2)
    names = page.locator(".candidates .name")
    best, second = names.nth(0).inner_text(), names.nth(1).inner_text()
    page.locator(".candidates [aria-label^=Force]").nth(1).click()
    page.locator("button.restore").wait_for()
    assert page.locator(".candidates .chosen .name").inner_text() == second
    assert page.locator(".side h4").inner_text().startswith("Given move")
    assert page.locator("#comparison tr").count() == 2
    page.click("button.restore")
    assert page.locator(".candidates .chosen .name").inner_text() == best
    page.locator(".candidates [aria-label^=Forbid]").first.click()
    page.locator("button.restore").wait_for()
    assert page.locator(".candidates .chosen .name").inner_text() != best
    # By keyboard, on the map: the node of the second candidate.
    page.click("button.restore")
    node = page.locator(f"#player .node[aria-label^='{second},']")
    node.focus()
    node.press("Enter")
    page.locator("button.restore").wait_for()
    assert page.locator(".candidates .chosen .name").inner_text() == second


def test_editing(page: Any, tmp_path: Path):
    """By mouse, keys and table; the changed instance is what is saved and loaded."""
    draw(page, "cvrp", 5)
    nodes = page.locator("#editor .node")
    sync_api.expect(nodes).to_have_count(6)
    box = page.locator("#editor svg").bounding_box()
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.97 * box["height"])
    assert nodes.count() == 7
    nodes.nth(6).hover()
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.up()
    y = float(page.locator("[aria-label='y of Customer 6']").input_value())
    assert 40 < y < 60
    page.locator("#editor .node").nth(1).focus()
    page.keyboard.press("Delete")
    assert nodes.count() == 6
    page.click("text=Undo")
    assert nodes.count() == 7
    page.locator("[aria-label='demand of Customer 2']").fill("3")
    page.keyboard.press("Tab")
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "saved.json")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert len(saved["coordinates"]) == 7 and saved["demand"][2] == 3
    saved["coordinates"].pop()
    saved["demand"].pop()
    (tmp_path / "other.json").write_text(json.dumps(saved))
    with page.expect_response("**/api/instances/parse"):
        page.set_input_files("#file", tmp_path / "other.json")
    sync_api.expect(nodes).to_have_count(6)


def test_errors_have_the_words_of_the_service(page: Any, tmp_path: Path, faults: list[str]):
    draw(page, "cvrp", 5)
    page.locator("[aria-label='demand of Customer 2']").fill("99")
    page.keyboard.press("Tab")
    page.click("#solve-button")
    page.locator("#error").wait_for()
    assert "expected customers that a vehicle can serve" in page.inner_text("#error-text")
    page.click("#dismiss")
    (tmp_path / "bad.vrp").write_text("NAME: x")
    page.set_input_files("#file", tmp_path / "bad.vrp")
    page.locator("#error").wait_for()
    assert "bad.vrp" in page.inner_text("#error-text")
    assert all("status of 422" in message for message in faults) and len(faults) == 2
    faults.clear()


#: Controls that are visible and have no name for screen readers.
UNNAMED = """() => [...document.querySelectorAll("button, input, select, [role=button]")]
  .filter((one) => one.checkVisibility()
    && !(one.ariaLabel || one.labels?.length || one.textContent.trim()))
  .map((one) => one.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone(browser: Any, server: Server, faults: list[str], scheme: str):
    """Nothing is wider than the screen, everything has a name, colours follow the system."""
    options = {
        "viewport": {"width": 360, "height": 740},
        "color_scheme": scheme,
        "bypass_csp": True,
    }
    page = open_page(browser, server.url, faults, **options)
    page.locator("#editor .node").first.wait_for()
    draw(page, "tsp", 6)
    solve(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(UNNAMED) == []
    red = page.evaluate("getComputedStyle(document.body).backgroundColor").split("(")[1].split(",")
    assert (int(red[0]) < 128) == (scheme == "dark")
    page.close()


def test_animation_is_one_file(
    browser: Any, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str]
):
    """`rl4co solve --animate` writes a page that plays without a server, and a GIF."""
    monkeypatch.setenv("RL4CO_MODELS", str(models))
    file = tmp_path / "a.json"
    file.write_text(
        json.dumps({"name": "</script>", "coordinates": [[0, 0], [3, 0], [3, 4], [0, 4]]})
    )
    for name in ("a.html", "a.gif"):
        options = ["--model", MODELS["tsp"], "--animate", str(tmp_path / name)]
        result = CliRunner().invoke(app, ["solve", str(file), *options])
        assert result.exit_code == 0, result.output
    image = pytest.importorskip("PIL.Image").open(tmp_path / "a.gif")
    assert image.n_frames == 5
    page = open_page(browser, (tmp_path / "a.html").as_uri(), faults)
    assert page.inner_text("h1").startswith("</script> · cost 1")
    page.click("[aria-label='To the end']")
    assert position(page) == (4, 4) and page.locator(".route").count() == 1
    page.close()
