"""The page as a person meets it, in headless Chromium; skipped where there is none.

Debian, Ubuntu: apt-get install chromium
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serving.job_types import JobState

pytestmark = pytest.mark.slow
api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
HOSTILE = "</td><img src=x onerror='window.hurt=1'>"
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
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


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    context.close()


def verdict(**fields: Any) -> dict[str, Any]:
    return {
        "record_id": "r", "source": "policy", "confirms": None, "speedup": None, "speedup_low": None,
        "speedup_high": None, "candidate_ms": None, "best_baseline": "eager", "flags": [], "message": "", "asked": 1,
    } | fields  # fmt: skip


def wait_for_job(front: Any) -> Any:
    end = time.monotonic() + 20
    while (job := front.store.claim("w")) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return job


def test_paste_watch_copy(start_front: Callable[..., Any], page: Any) -> None:
    front = start_front()
    _, secret = front.keys.create("page", scopes=["optimize"])
    page.goto(front.url)
    page.get_by_label("API key").fill(secret)
    page.get_by_label("Task:").fill(TASK)
    page.get_by_role("button", name="Optimize").click()
    job = wait_for_job(front)
    assert job.request["task_source"] == TASK
    rows = page.locator("#verdicts tr")
    front.store.add_event(job.job_id, "w", "verdict", verdict(status="incorrect", message=f"wrong {HOSTILE}"))
    api.expect(rows).to_have_count(1)  # before the next thing happens
    assert HOSTILE in rows.first.inner_text()
    low = {"speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6}
    front.store.add_event(job.job_id, "w", "verdict", verdict(status="win", asked=2, **low))
    api.expect(rows).to_have_count(2)
    assert rows.first.inner_text().split("\t")[1:4] == ["win", "1.50x", "1.40x to 1.60x"]
    code = f"import torch\n# <b>{HOSTILE}</b>\nclass ModelNew(torch.nn.Module): ...\n"
    result = {
        "status": "win", "task_name": "t", "code": code, "record_id": "r", "source": "policy", "asked": 2,
        "judged": 2, "statuses": {}, "seconds": 3.0, "message": "", "best_baseline": "eager",
    } | low  # fmt: skip
    front.store.finish(job.job_id, "w", JobState.DONE, result=result)
    api.expect(page.locator("#kernel")).to_have_text(code)
    api.expect(page.locator("#summary")).to_contain_text("1.50x, 99% interval 1.40x to 1.60x against eager")
    page.get_by_role("button", name="Copy the kernel").click()
    api.expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == code
    assert page.evaluate("window.hurt") is None
    assert page.problems == []


def test_cancel_and_errors_are_said(start_front: Callable[..., Any], page: Any) -> None:
    front = start_front()
    page.goto(front.url)
    page.get_by_label("Task:").fill("not python (")
    page.get_by_role("button", name="Optimize").click()
    api.expect(page.locator("#state")).to_contain_text("not Python")
    page.get_by_label("Task:").fill(TASK)
    page.get_by_role("button", name="Optimize").click()
    page.get_by_role("button", name="Cancel").click()
    api.expect(page.locator("#state")).to_have_text("Cancelled.")
    assert front.store.counts()["cancelled"] == 1
    assert [problem for problem in page.problems if "422" not in problem] == []


def test_a_broken_stream_is_taken_up_after_the_last_event(start_front: Callable[..., Any], page: Any) -> None:
    front = start_front()
    broken = threading.Event()

    def cut(route: Any) -> None:
        if broken.is_set():
            route.continue_()
            return
        broken.set()
        answer = route.fetch(url=f"{front.url}/v1/jobs")  # something short in the stream's place
        route.fulfill(response=answer, body="")

    page.route("**/events", cut)
    page.goto(front.url)
    page.get_by_label("Task:").fill(TASK)
    page.get_by_role("button", name="Optimize").click()
    job = wait_for_job(front)
    front.store.add_event(job.job_id, "w", "verdict", verdict(status="correct"))
    api.expect(page.locator("#verdicts tr")).to_have_count(1)
    assert broken.is_set()
    front.store.finish(job.job_id, "w", JobState.FAILED, error="the task fails", error_status=422)
    api.expect(page.locator("#state")).to_have_text("the task fails")
