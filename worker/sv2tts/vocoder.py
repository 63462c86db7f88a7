"""The vocoders: log-mel frames become a waveform.

A network predicts, per frame, the pitch, whether there is voice, and the spectral envelopes of its harmonic and its
noisy part. The wave is made from these by a source and a filter: pulses and noise, shaped in short spectra (the
harmonic part with minimum phase) and joined by overlap-add, as in HiFTNet (Li et al., 2023) but with the network at
frame rate only.

A vocoder may work at 16 kHz inside: then the inverse transform has room for 24 kHz and leaves the bands above empty,
which is exact and needs no state, and what comes out is 24 kHz like every stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from worker.backends.graph import Backend
from worker.backends.onnx import OnnxBackend
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import FLOOR, HOP_LENGTH, N_MELS, Floats, hann
from worker.sv2tts.source import (
    FULL,
    GRIDS,
    OVERLAP,
    Grid,
    PulseSource,
    Spectra,
    cut_frames,
    frame_spectra,
    noise_spectra,
    sound_pulses,
)

LOOK_AHEAD = 4
"""Frames that the network looks ahead; the synthesis adds two and a half."""

BLOCK = 8
"""Frames that are worked off together. The synthesizer gives four frames and then eights: with four the first chunk
would not leave earlier, and with more it would leave later."""

_FLUSH = LOOK_AHEAD + BLOCK + 2
_VOICED_FROM = 0.5
_SILENCE = np.float32(np.log(FLOOR))
_OUT_HOP = FULL.hop
_OUT_WINDOW = FULL.window


@cache
def out_window(grid: Grid) -> Floats:
    """What frames at 24 kHz are weighted with: with the Hann window of the analysis it adds up to one, and it makes up
    for an inverse transform that is longer than the forward one."""
    return hann(_OUT_WINDOW) * np.float32(grid.out_transform / grid.transform / 1.5)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the network says of T frames: `pitch` [T] in Hz, `voiced` bool[T], and what the sources are multiplied with
    every 5 ms, spectra `tone` complex64[2 T, bins] and magnitudes `noise` float32[2 T, bins]."""

    pitch: Floats
    voiced: NDArray[np.bool_]
    tone: Spectra
    noise: Floats

    def since(self, frame: int) -> "Prediction":
        """Without the first frames."""
        return Prediction(self.pitch[frame:], self.voiced[frame:], self.tone[2 * frame :], self.noise[2 * frame :])


class Vocoder:
    """Turns mels into sound with a vocoder graph of a bundle; one instance serves many streams.

    Streams of every graph give 24 kHz, 240 samples a frame. For one thread at a time.
    """

    def __init__(
        self, bundle: Bundle, threads: int = 1, backend: Backend | None = None, graph: str = "vocoder"
    ) -> None:
        self._graph = (backend or OnnxBackend(threads=threads)).open(bundle, graph)
        self.grid = GRIDS[bundle.manifest["vocoders"][graph]["internal_rate"]]
        shape = bundle.manifest["shapes"][graph]["inputs"]["cache"]
        self._cache_shape = (int(shape[1]), int(shape[2]))

    def start(self) -> "VocoderStream":
        """A stream for one utterance."""
        return VocoderStream(self, np.zeros(self._cache_shape, np.float32))

    def work_off(self, streams: Sequence["VocoderStream"]) -> list[Floats]:
        """The samples float32[N] that the frames which each stream has accepted complete.

        What a stream gets does not depend, to the last bit, on which others are with it.
        """
        while ready := [stream for stream in streams if stream.has_block]:
            predictions = self._predict(ready)
            pulses = [
                stream.source.follow(said.pitch, said.voiced) for stream, said in zip(ready, predictions, strict=True)
            ]
            for stream, said, train in zip(ready, predictions, sound_pulses(pulses, self.grid), strict=True):
                stream.extend(said, train)
            synthesize(ready, self.grid)
        return [stream.release() for stream in streams]

    def _predict(self, streams: Sequence["VocoderStream"]) -> list[Prediction]:
        """What the network says of the next block of each stream, LOOK_AHEAD frames late; at the beginning of a stream
        without what it says of the frames before."""
        blocks = np.stack([stream.waiting[:BLOCK] for stream in streams])
        given = self._graph.run({"mel": blocks, "cache": np.stack([stream.cache for stream in streams])})
        tone = np.empty(given["tone_real"].shape, np.complex64)
        tone.real, tone.imag = given["tone_real"], given["tone_imag"]
        voiced = given["voicing"] > _VOICED_FROM
        rows = zip(streams, given["pitch"], voiced, tone, given["noise"], given["next_cache"], strict=True)
        return [stream.consume(Prediction(*said), cache) for stream, *said, cache in rows]


class VocoderStream:
    """The state of one utterance between pushes.

    Frames are worked off in blocks of eight from the start of the utterance, however they were pushed, because the last
    bits of a matrix product depend on its size and a pitch adds up: so the sound does not depend on the cutting.
    """

    def __init__(self, vocoder: Vocoder, cache: Floats) -> None:
        grid = vocoder.grid
        self._vocoder = vocoder
        self.cache = cache
        self.waiting = np.zeros((0, N_MELS), np.float32)
        self.source = PulseSource(grid)
        self.frame = 0
        self._grid = grid
        self._pulses = np.zeros(grid.window // 2, np.float32)
        self._tone = np.zeros((0, grid.bins), np.complex64)
        self._noise = np.zeros((0, grid.bins), np.float32)
        self._tail = np.zeros(_OUT_WINDOW, np.float32)
        self._sound: list[Floats] = []
        self._begun = False
        self._due = 0
        self._finished = False

    @property
    def has_block(self) -> bool:
        """Whether there are frames enough to work on."""
        return len(self.waiting) >= BLOCK

    def push(self, mel: Floats, final: bool = False) -> Floats:
        """The samples float32[N] that log-mel frames float32[T, 80] complete, T >= 0.

        They come up to LOOK_AHEAD + 2.5 frames and a block late; with `final` all that is left comes, so that the
        samples of a stream are 240 times its frames. Raises ValueError after the final push.
        """
        self.accept(mel, final)
        return self._vocoder.work_off([self])[0]

    def accept(self, mel: Floats, final: bool = False) -> None:
        """Take frames without working on them yet; raises ValueError after the final ones."""
        if self._finished:
            raise ValueError("this utterance has had its final frames; start another stream")
        self._finished = final
        self._due += HOP_LENGTH * len(mel)
        self.waiting = np.concatenate([self.waiting, mel])
        if final:
            self.waiting = np.pad(self.waiting, ((0, _FLUSH), (0, 0)), constant_values=_SILENCE)

    def consume(self, said: Prediction, cache: Floats) -> Prediction:
        """A block was worked on: what was said of frames of the stream, which at first are fewer."""
        self.waiting, self.cache = self.waiting[BLOCK:], cache
        fresh, self._begun = said if self._begun else said.since(LOOK_AHEAD), True
        return fresh

    def extend(self, said: Prediction, pulses: Floats) -> None:
        """Take filters and what is to be filtered."""
        self._tone = np.concatenate([self._tone, said.tone])
        self._noise = np.concatenate([self._noise, said.noise])
        self._pulses = np.concatenate([self._pulses, pulses])

    def take_frames(self) -> tuple[Floats, Spectra, Floats]:
        """The frames whose samples are all known, with their filters: float32[T, window], tone and noise."""
        frames = cut_frames(self._pulses, self._grid)
        count = len(frames)
        tone, noise = self._tone[:count], self._noise[:count]
        self._pulses = self._pulses[count * self._grid.hop :]
        self._tone, self._noise = self._tone[count:], self._noise[count:]
        return frames, tone, noise

    def add_frames(self, frames: Floats) -> None:
        """Overlap-add frames float32[T, 480]; the samples that no later frame touches are sound."""
        sound = overlap_add(frames, self._tail)
        done, self._tail = sound[: len(frames) * _OUT_HOP], sound[len(frames) * _OUT_HOP :]
        before = max(0, _OUT_WINDOW // 2 - self.frame * _OUT_HOP)
        self._sound.append(done[before:])
        self.frame += len(frames)

    def release(self) -> Floats:
        """The sound so far, without what would be more than the frames are worth."""
        samples = np.concatenate([np.zeros(0, np.float32), *self._sound])[: self._due]
        self._sound.clear()
        self._due -= len(samples)
        return samples


def synthesize(streams: Sequence[VocoderStream], grid: Grid) -> None:
    """Make sound of all streams' frames that are complete, the transforms of all in one call."""
    taken = [stream.take_frames() for stream in streams]
    frames, tone, noise = (np.concatenate(parts) for parts in zip(*taken, strict=True))
    counts = [len(part) for part, _, _ in taken]
    hiss = [noise_spectra(stream.frame, count, grid) for stream, count in zip(streams, counts, strict=True)]
    spectra = frame_spectra(frames, grid) * tone + np.concatenate(hiss) * noise
    waves = np.fft.irfft(spectra, grid.out_transform, axis=1)[:, :_OUT_WINDOW]
    shaped = np.asarray(waves * out_window(grid), np.float32)
    start = 0
    for stream, count in zip(streams, counts, strict=True):
        stream.add_frames(shaped[start : start + count])
        start += count


def overlap_add(frames: Floats, tail: Floats) -> Floats:
    """`tail` float32[480] and frames float32[T, 480], 120 apart and beginning where the tail begins, added up:
    float32[120 T + 480]."""
    sound: NDArray[np.float32] = np.zeros((len(frames) + OVERLAP, _OUT_HOP), np.float32)
    sound[:OVERLAP] += tail.reshape(OVERLAP, _OUT_HOP)
    for part in range(OVERLAP):
        sound[part : part + len(frames)] += frames[:, part * _OUT_HOP : (part + 1) * _OUT_HOP]
    return sound.reshape(-1)
