"""Every codec in a real Chromium: it decodes the whole, and its player plays it to the end."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from relay.audio.formats import Codec, parse_format
from tests.browser import open_browser
from tests.relay.audio.listening import encode, make_voice

MICROPHONE = Path(__file__).parents[3] / "samples" / "reference-low.wav"
NAMES = ["wav_24000", "mp3_24000_64", "mp3_44100_128", "opus_48000_64", "flac_24000", "aac_44100_64"]
LONGEST_PADDING_S = 0.25

LISTEN = """
const [encoded, type, done] = arguments;
const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
const decode = async () => {
  const context = new OfflineAudioContext(1, 48000, 48000);
  return (await context.decodeAudioData(bytes.slice().buffer)).duration;
};
const play = () => new Promise((tell) => {
  const player = new Audio();
  player.onended = () => tell("ended");
  player.onerror = () => tell(player.error.message);
  player.src = URL.createObjectURL(new Blob([bytes], {type}));
  player.play().catch((error) => tell(String(error)));
});
const listen = async () => ({seconds: await decode(), outcome: await play(), can: new Audio().canPlayType(type)});
listen().then(done, (error) => done({seconds: 0, outcome: String(error), can: ""}));
"""


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A page that somebody has clicked on: without that a browser plays nothing."""
    with open_browser(MICROPHONE, tmp_path_factory.mktemp("profile")) as chrome:
        chrome.get("data:text/html,<button>Play</button>")
        chrome.find_element(By.TAG_NAME, "button").click()
        yield chrome


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("samples", [1, 480, 9600], ids=["a sample", "20 ms", "Hello"])
def test_played_to_the_end(chrome: Chrome, name: str, samples: int) -> None:
    """However short it is, a browser takes it by its media type, decodes all of it, and plays it to the end (FM6)."""
    format = parse_format(name)
    encoded = base64.b64encode(encode(name, make_voice(samples))).decode()
    heard: dict[str, Any] = chrome.execute_async_script(LISTEN, encoded, format.media_type)
    assert (heard["outcome"], heard["can"] in ("maybe", "probably")) == ("ended", True)
    padded = format.codec in (Codec.MP3, Codec.AAC)
    assert samples / 24_000 - 1e-4 <= heard["seconds"] <= samples / 24_000 + (LONGEST_PADDING_S if padded else 1e-4)
