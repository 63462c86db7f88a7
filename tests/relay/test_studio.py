"""relay.studio: the page in a real browser, with a microphone that hears a recording."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser import DEADLINE_S, open_browser
from tests.conftest import MakeTenant, StartStack

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "samples" / "reference-high.wav"
RECORDED_S = 7.0
FIELDS = {"name": "My voice", "tenant": "Acme", "signer": "A. Person", "purpose": "reading the news"}


def _wait(chrome: Chrome, script: str) -> None:
    WebDriverWait(chrome, DEADLINE_S, 0.1).until(lambda _: chrome.execute_script(f"return {script}"))


@pytest.mark.timeout(180)
async def test_a_person_consents_records_and_has_a_voice(
    start_stack: StartStack, make_tenant: MakeTenant, tmp_path: Path
) -> None:
    """What MediaRecorder gives is enrolled, and the consent holds the words that the person saw."""
    stack = start_stack(only=("relay", "worker", "celery"))
    tenant = await make_tenant("acme")
    with open_browser(REFERENCE, tmp_path / "profile") as chrome:
        chrome.get(f"{stack.relay_url}/studio/")
        _wait(chrome, "document.querySelectorAll('#language option').length > 1")
        for name, value in {"key": tenant.key, **FIELDS}.items():
            chrome.find_element(By.ID, name).send_keys(value)
        chrome.find_element(By.ID, "agree").click()
        shown = chrome.find_element(By.ID, "statement").text
        record = chrome.find_element(By.ID, "record")
        record.click()
        _wait(chrome, f"parseFloat(document.getElementById('time').textContent) > {RECORDED_S}")
        record.click()
        _wait(chrome, "!document.getElementById('send').disabled")
        chrome.find_element(By.ID, "send").click()
        _wait(chrome, "/ready|error/.test(outcome.textContent + outcome.dataset.kind)")
        assert "Your voice is ready" in chrome.find_element(By.ID, "outcome").text
    async with httpx2.AsyncClient(
        base_url=stack.relay_url, headers={"Authorization": f"Bearer {tenant.key}"}
    ) as client:
        (voice,) = (await client.get("/v1/voices")).json()["voices"]
    assert voice["state"] == "ready"
    assert all(word in shown for word in ("A. Person", "Acme", "reading the news"))


async def test_the_page_may_run_nothing_but_itself(start_stack: StartStack) -> None:
    """Its policy allows no script, frame or connection from elsewhere, and it is found without a slash as well."""
    stack = start_stack(only=("worker", "relay"))
    async with httpx2.AsyncClient(base_url=stack.relay_url, follow_redirects=True) as client:
        page = await client.get("/studio")
        policy = page.headers["content-security-policy"]
        assert page.status_code == 200
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert (await client.get("/studio/../app.py")).status_code == 404
        assert (await client.get("/studio/%2e%2e/__init__.py")).status_code == 404
