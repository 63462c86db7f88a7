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
_LISTEN = """
window.loudest = 0;
const player = document.getElementById("player");
const timer = setInterval(() => {
  if (!player.srcObject) return;
  clearInterval(timer);
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(player.srcObject).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    window.loudest = Math.max(window.loudest, ...samples.map(Math.abs));
  }, 20);
}, 10);
"""
FIELDS = {"name": "My voice", "tenant": "Acme", "signer": "A. Person", "purpose": "reading the news"}


def _wait(chrome: Chrome, script: str) -> None:
    WebDriverWait(chrome, DEADLINE_S, 0.1).until(lambda _: chrome.execute_script(f"return {script}"))


@pytest.mark.timeout(180)
async def test_a_person_consents_records_and_has_a_voice(
    start_stack: StartStack, make_tenant: MakeTenant, tmp_path: Path
) -> None:
    """What MediaRecorder gives is enrolled, the consent holds the words that were seen, and the voice is heard."""
    stack = start_stack(only=("relay", "worker", "celery"), webrtc_loopback=True)
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
        _hear(chrome)
    async with httpx2.AsyncClient(
        base_url=stack.relay_url, headers={"Authorization": f"Bearer {tenant.key}"}
    ) as client:
        (voice,) = (await client.get("/v1/voices")).json()["voices"]
    assert voice["state"] == "ready"
    assert all(word in shown for word in ("A. Person", "Acme", "reading the news"))


def _hear(chrome: Chrome) -> None:
    """The page speaks a text over WebRTC, marks every word once, plays sound, and can be hushed."""
    text = chrome.find_element(By.ID, "text")
    text.clear()
    text.send_keys("Now you hear what I sound like.")
    chrome.execute_script(_LISTEN)
    speak = chrome.find_element(By.CSS_SELECTOR, "#speak [type=submit]")
    speak.click()
    _wait(chrome, "document.getElementById('line').dataset.state === 'played'")
    marked = chrome.execute_script(
        "return [...document.querySelectorAll('#heard mark.heard')].map((m) => m.textContent)"
    )
    assert marked == ["Now", "you", "hear", "what", "I", "sound", "like."]
    assert chrome.find_element(By.ID, "heard").text == "Now you hear what I sound like."
    assert chrome.execute_script("return window.loudest") > 0.05
    text.clear()
    text.send_keys("One two three four five six seven eight nine ten. " * 5)
    speak.click()
    _wait(chrome, "document.querySelectorAll('#heard mark.now').length > 0")
    chrome.find_element(By.ID, "hush").click()
    _wait(chrome, "document.getElementById('line').dataset.state === 'cancelled'")


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
