"""What a reader does with a report, in a real browser."""
# pyright: reportMissingImports=false

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.report.conftest import HOSTILE

PANELS = ("images", "guarantee", "limits", "budget", "accuracy", "confusion", "trends", "use", "record")
AXE = Path(os.environ.get("AXE", ".browser/node_modules/axe-core/axe.min.js"))
ROOMS = [(width, scheme) for width in (375, 1440) for scheme in ("light", "dark")]

Open = Callable[..., Page]


def test_every_panel_is_there_and_can_be_reached(opened: Open) -> None:
    page = opened()
    for name in PANELS:
        page.locator(f"nav a[href='#{name}']").click()
        expect(page.locator(f"#{name} h2")).to_be_in_viewport()
        assert page.locator(f"#{name}").inner_text().strip() != page.locator(f"#{name} h2").inner_text()
    assert page.locator("#trends svg.lines").count() == 2


@pytest.mark.parametrize("name", ["one", "several", "statistics"])
def test_a_report_loads_without_an_error_or_a_request(opened: Open, name: str) -> None:
    page = opened(name)
    expect(page.locator("h1")).to_be_visible()
    assert (
        page.evaluate("performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length") == 0
    )


def test_the_page_may_not_fetch_even_if_it_wanted_to(opened: Open, complaints: list[str]) -> None:
    page = opened()
    assert page.evaluate("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"
    assert any("Content Security Policy" in one for one in complaints)
    complaints.clear()


def test_a_hostile_class_name_is_read_not_run(opened: Open) -> None:
    page = opened()
    expect(page.locator("#images h4", has_text=HOSTILE)).to_be_visible()
    assert page.locator("script").count() == 1


def test_a_click_enlarges_an_image_and_escape_closes_it(opened: Open) -> None:
    page = opened()
    tile = page.locator(".tile").nth(2)
    small = tile.locator("img").bounding_box()
    tile.click()
    shown = page.locator("#zoom img")
    expect(page.locator("#zoom")).to_be_visible()
    assert shown.get_attribute("src") == tile.locator("img").get_attribute("src")
    assert shown.bounding_box()["width"] > 3 * small["width"]  # type: ignore[index]
    expect(page.locator("#zoom-name")).to_have_text("zero, image 3 of 4")
    page.keyboard.press("Escape")
    expect(page.locator("#zoom")).to_be_hidden()
    expect(tile).to_be_focused()


def test_a_click_beside_the_image_or_on_close_closes_it(opened: Open) -> None:
    page = opened()
    page.locator(".tile").first.click()
    page.locator("#zoom button", has_text="Close").click()
    expect(page.locator("#zoom")).to_be_hidden()
    page.locator(".tile").first.click()
    page.mouse.click(5, 5)
    expect(page.locator("#zoom")).to_be_hidden()


def test_the_keyboard_alone_is_enough(opened: Open) -> None:
    page = opened()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    tiles = page.locator(".tile")
    expect(tiles.nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tiles.nth(1)).to_be_focused()
    page.keyboard.press("ArrowDown")  # the same column of the next class
    expect(tiles.nth(5)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#zoom-name")).to_have_text(f"{HOSTILE}, image 2 of 4")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#zoom-name")).to_have_text(f"{HOSTILE}, image 3 of 4")
    page.keyboard.press("Escape")
    expect(tiles.nth(6)).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")  # there is none: nothing happens
    expect(tiles.nth(0)).to_be_focused()
    page.keyboard.press("Tab")  # one stop for all images: out of them
    assert page.evaluate("document.activeElement.closest('.gallery')") is None


@pytest.mark.parametrize("name", ["one", "several", "statistics"])
@pytest.mark.parametrize(("width", "scheme"), ROOMS)
def test_the_layout_holds(opened: Open, name: str, width: int, scheme: str) -> None:
    page = opened(name, width=width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # What is wider than the page scrolls in a frame of its own; nothing else reaches past the edge.
    outside = page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.frame, pre, dialog, .skip')
             && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(251, 250, 247)" if scheme == "light" else "rgb(21, 23, 26)"
    )


def test_releases_stand_side_by_side_where_there_is_room(opened: Open) -> None:
    tops = {}
    for width in (375, 1440):
        page = opened("several", width=width)
        articles = page.locator("#guarantee article")
        assert articles.count() == 4
        tops[width] = {round(articles.nth(place).bounding_box()["y"]) for place in range(4)}  # type: ignore[index]
    assert len(tops[375]) == 4
    assert len(tops[1440]) < 4


def test_what_is_not_private_cannot_be_missed(opened: Open) -> None:
    page = opened("several")
    expect(page.locator("header .banner")).to_be_in_viewport()
    expect(page.locator("header .banner")).to_contain_text("NOT PRIVATE. seeded has no guarantee")


def test_it_prints(opened: Open) -> None:
    page = opened(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator("#record table").first).to_be_visible()  # what is folded up on a screen
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("name", ["one", "several", "statistics"])
@pytest.mark.parametrize(("width", "scheme"), ROOMS)
def test_axe_finds_nothing_serious(opened: Open, name: str, width: int, scheme: str) -> None:
    page = opened(name, width=width, script=AXE, color_scheme=scheme)
    assert_accessible(page)


def test_axe_finds_nothing_serious_about_an_enlarged_image(opened: Open) -> None:
    page = opened(script=AXE)
    page.locator(".tile").first.click()
    assert_accessible(page)


def assert_accessible(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 5
    serious = [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
    assert serious == []
