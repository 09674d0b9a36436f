"""The site as a person meets it: opened from disk in headless Chromium; skipped where there is none.

Debian, Ubuntu: apt-get install chromium
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from archive.site import build
from archive.site.build import build_site
from archive.store import Archive
from archive.types import ArchivedTask, Record
from judge.types import Baselines, Status, Verdict

pytestmark = pytest.mark.slow
api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = api.expect
HOSTILE = "</script><img src=x onerror='window.hurt=1'>"
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here (Debian, Ubuntu: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    archive = Archive(str(folder / "archive.db"))
    archive.add_tasks([ArchivedTask(task_id="t0", name="softmax", level=1, source="class Model: pass")])
    records = []
    for number in range(260):
        status = [Status.WIN, Status.CORRECT, Status.INCORRECT, Status.REJECTED][number % 4]
        speedup = 1.1 + number / 100 if number % 4 < 2 else None
        verdict = Verdict(
            status=status,
            speedup=speedup,
            speedup_low=speedup and speedup - 0.05,
            speedup_high=speedup and speedup + 0.05,
            baselines=Baselines(eager=1.0),
            best_baseline="eager",
            flags=("touches clocks",) if number % 50 == 1 else (),
            sandbox=("landlock", "seccomp"),
            message=f"two measurements disagree {HOSTILE}" if status is Status.REJECTED else "",
        )
        kernel = f'extern "C" void f{number}(float* x) {{ /* {HOSTILE} */ }}'
        code = f'import torch\nSOURCE = r"""\n{kernel}\n"""\nx = {number}\n'
        records.append(
            Record(
                record_id=f"{number:032x}",
                run_id="run",
                task_name=["softmax", f"gelu {HOSTILE}"][number // 4 % 2],
                task_id=f"t{number // 4 % 2}",
                source=["policy", "expert"][number % 3 == 0],
                operator="contrast",
                code=code + (f"# trick \u202e {number}\n" if number == 8 else ""),
                parents=(f"{number - 8:032x}",) if number >= 8 else (),
                step=number,
                verdict=verdict,
            )
        )
    archive.add_many(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "INDEX_CHUNK", 120)
        build_site(archive, folder / "out", title=f"Kernels {HOSTILE}")
    archive.close()
    return folder / "out"


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Callable[..., Any]]:
    """Opens an address of the site; fails when the page's script did, or when a hostile text got through."""
    contexts, complaints = [], []

    def go(address: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"file://{site}/{address}")
        page.wait_for_selector("body[data-ready]", timeout=20_000)
        return page

    yield go
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.hurt") is None
            assert page.locator("img").count() == 0
        context.close()
    assert complaints == []


def test_filters_narrow_the_leaderboard_and_stay_in_the_address(visit: Callable[..., Any]) -> None:
    page = visit("index.html")
    assert page.locator("#rows tbody tr").count() == 100
    assert page.locator("#rows tbody tr").first.inner_text().startswith("softmax")
    page.select_option("select[name=status]", "rejected")
    expect(page.locator("#rows tbody tr")).to_have_count(65)
    page.select_option("select[name=source]", "expert")
    expected = sum(1 for number in range(260) if number % 4 == 3 and number % 3 == 0)
    expect(page.locator("#rows tbody tr")).to_have_count(expected)
    assert "status=rejected" in page.url and "source=expert" in page.url
    again = visit(page.url.rsplit("/", 1)[1])
    assert again.locator("#rows tbody tr").count() == expected
    assert again.locator("select[name=status]").input_value() == "rejected"
    again.click("text=Clear")
    expect(again.locator("#rows tbody tr")).to_have_count(100)
    again.click("#more")
    expect(again.locator("#rows tbody tr")).to_have_count(260)


def test_only_the_best_of_each_task_is_one_row_a_task(visit: Callable[..., Any]) -> None:
    page = visit("index.html#best=1&status=win")
    assert page.locator("#rows tbody tr").count() == 2
    assert page.locator("#rows tbody td a").first.get_attribute("href").endswith(f"{256:032x}")


def test_a_kernel_shows_its_code_verdict_difference_and_lineage(visit: Callable[..., Any]) -> None:
    page = visit(f"kernel.html#id={16:032x}")
    text = page.locator("main").inner_text()
    for words in ("1.26×", "1.21 to 1.31", "landlock", "against eager", HOSTILE, "run"):
        assert words in text
    assert page.locator(".code .t", has_text="float").count() > 0
    assert page.locator(".diff li.added").count() == 2
    assert page.locator(".diff li.removed").count() == 3
    assert page.locator("svg .node").count() == 7, "two ancestors, itself, four generations of descendants"
    page.locator("svg a").first.focus()
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile(f"{16:032x}$"))


def test_characters_that_deceive_are_spelled_out(visit: Callable[..., Any]) -> None:
    text = visit(f"kernel.html#id={8:032x}").locator(".code").first.inner_text()
    assert "\\u202e" in text
    assert "\u202e" not in text


def test_a_task_has_its_curve_its_map_and_its_kernels(visit: Callable[..., Any]) -> None:
    page = visit("task.html#id=t0")
    assert page.locator("svg path.line").count() == 1
    correct = sum(1 for number in range(260) if number // 4 % 2 == 0 and number % 4 < 2)
    assert f"{correct} correct kernels" in page.locator("svg").first.get_attribute("aria-label")
    assert page.locator("tbody tr").count() == 100
    assert "class Model" in page.locator(".code").last.inner_text()


def test_two_kernels_are_compared(visit: Callable[..., Any]) -> None:
    page = visit(f"compare.html#a={0:032x}&b={1:032x}")
    assert page.locator(".diff li.added").count() == 2
    page.click("text=Swap")
    expect(page).to_have_url(re.compile(f"#a={1:032x}"))
    assert page.locator("section.card").count() == 2


def test_galleries_explain_what_they_show(visit: Callable[..., Any]) -> None:
    page = visit("rejected.html")
    assert "Measurements that disagree (65)" in page.locator("h2").first.inner_text()
    page.click("summary")
    assert HOSTILE in page.locator("tbody tr").first.inner_text()
    marked = [number for number in range(260) if number % 50 == 1 and number % 4 != 3]  # those rejected are not here
    assert f"touches clocks ({len(marked)})" in visit("suspicious.html").locator("h2").first.inner_text()


def test_search_finds_words_of_the_code_and_ids(visit: Callable[..., Any]) -> None:
    page = visit("search.html")
    page.fill("input[name=q]", "F77 softmax")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found p, #found table")
    assert page.locator("#found").inner_text() == "Nothing found.", "77 is a kernel of the other task"
    page.fill("input[name=q]", "f77")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found table")
    assert page.locator("#found tbody tr").count() == 1
    assert visit(f"search.html#q={200:032x}").locator("#found tbody tr").count() == 1


@pytest.mark.parametrize("address", ["kernel.html#id=nosuch", "kernel.html", "task.html#id=__proto__"])
def test_an_address_of_nothing_says_so(visit: Callable[..., Any], address: str) -> None:
    assert visit(address).locator("h1").inner_text().startswith("No such")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "address", ["index.html", "kernel.html#id=" + "0" * 30 + "10", "rejected.html", "task.html#id=t1"]
)
def test_pages_fit_a_phone_and_can_be_read(visit: Callable[..., Any], address: str, scheme: str) -> None:
    page = visit(address, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(_LOWEST_CONTRAST) >= 4.5, "WCAG 2.2, 1.4.3 for text"
    unnamed = "[...document.querySelectorAll('input,select,button,a[href],svg')].filter(e => !(e.textContent.trim() || "
    unnamed += "e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.outerHTML)"
    assert page.evaluate(unnamed) == []


def test_the_keyboard_reaches_everything(visit: Callable[..., Any]) -> None:
    page = visit("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "task"


_LOWEST_CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  let lowest = 21;
  for (const e of document.querySelectorAll("main *")) {
    const said = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!said || !e.getClientRects().length || e.closest("svg")) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    lowest = Math.min(lowest, (a + 0.05) / (b + 0.05));
  }
  return lowest;
}"""
