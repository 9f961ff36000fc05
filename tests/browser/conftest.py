"""Reports in Debian's chromium, driven by Playwright; `make test-browser` installs both."""
# pyright: reportMissingImports=false

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Dialog, Page, sync_playwright
from tests.release.conftest import Workshop
from tests.report.conftest import FACTS_HOSTILE, evaluated, result

from privset.report import write_report

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MILLISECONDS = 20_000


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One release with all there is to say about it; several side by side; statistics alone."""
    folder, workshop = tmp_path_factory.mktemp("reports"), Workshop()
    rich = workshop.publish(folder / "rich", workshop.plan(facts=FACTS_HOSTILE))
    statistics = workshop.measure(folder / "statistics")
    distilled = workshop.distil(folder / "distilled", statistics, per_class=3)
    seeded = workshop.publish(folder / "seeded", workshop.plan(), noise="seeded")
    evaluations = []
    for number, (release, network) in enumerate([(rich, "convnet"), (rich, "mlp"), (distilled, "mlp")]):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(evaluated(release, classifier=network, accuracy=60.0 + 10 * number)))
        evaluations.append(path)
    (folder / "results" / "trial").mkdir(parents=True)
    for epsilon in (0.5, 1.0, 10.0):
        for per_class in (4, 40):
            path = folder / "results" / "trial" / f"{epsilon}-{per_class}.json"
            path.write_text(json.dumps(result(epsilon=epsilon, per_class=per_class)))
    pages = {name: folder / f"{name}.html" for name in ("one", "several", "statistics")}
    write_report([rich], pages["one"], evaluations=evaluations[:2], results=folder / "results")
    write_report([rich, distilled, seeded, statistics], pages["several"], evaluations=evaluations)
    write_report([statistics], pages["statistics"])
    return pages


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A browser that knows no one, and has no network."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} is not there; `make test-browser` installs it", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")), executable_path=CHROMIUM, args=list(FLAGS), offline=True
        )
        browser.set_default_timeout(MILLISECONDS)
        yield browser
        browser.close()


class Complaints(list[str]):
    """Whatever a page should not have done: errors, warnings, requests."""


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def opened(context: BrowserContext, reports: dict[str, Path], complaints: Complaints) -> Iterator[Callable[..., Page]]:
    """Opens a report, watched; ends with a look at what it complained of."""
    pages: list[Page] = []

    def watch_request(url: str, own: str) -> None:
        if not url.startswith("data:") and url.split("#")[0] != own:
            complaints.append(f"asked for {url}")

    def watch_dialog(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open_report(name: str = "one", *, width: int = 1440, script: Path | None = None, **media: Any) -> Page:
        page = context.new_page()
        pages.append(page)
        own = reports[name].as_uri()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", watch_dialog)
        page.on("request", lambda request: watch_request(request.url, own))
        page.set_viewport_size({"width": width, "height": 900})
        if media:
            page.emulate_media(**media)
        if script is not None:
            page.add_init_script(path=script)
        page.goto(own)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert complaints == []
