"""A real Chromium without a window, whose microphone hears a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

DEADLINE_S = 30


@contextmanager
def open_browser(microphone: Path, profile: Path, *, again: bool = False) -> Iterator[Chrome]:
    """Skips the test where there is no Chromium; `profile` is an empty folder.

    The microphone hears the file once, or `again` and again. Sound is played without a click, and WebRTC works where
    127.0.0.1 is the only address.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with its chromedriver on the PATH (Debian: chromium, chromium-driver)")
    options = ChromeOptions()
    options.binary_location = browser
    for argument in (
        *("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"),
        *("disable-component-update", "disable-sync", "disable-dev-shm-usage", f"user-data-dir={profile}"),
        *("use-fake-ui-for-media-stream", "use-fake-device-for-media-stream"),
        f"use-file-for-fake-audio-capture={microphone}{'' if again else '%noloop'}",
        *("autoplay-policy=no-user-gesture-required", "allow-loopback-in-peer-connection"),
        "disable-features=WebRtcHideLocalIpsWithMdns",
    ):
        options.add_argument(f"--{argument}")
    chrome = Chrome(options=options, service=ChromeService(driver))
    try:
        chrome.set_script_timeout(DEADLINE_S)
        chrome.set_page_load_timeout(DEADLINE_S)
        yield chrome
    finally:
        chrome.quit()
