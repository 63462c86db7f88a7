"""The vocoders: log-mel frames become a waveform.

A network predicts, per frame, the pitch, whether there is voice, and the spectral envelopes of its harmonic and its
noisy part. The wave is made from these by a source and a filter: pulses and noise, shaped in short spectra (the
harmonic part with minimum phase) and joined by overlap-add, as in HiFTNet (Li et al., 2023) but with the network at
frame rate only.

A vocoder may work at 16 kHz inside: then the inverse transform has room for 24 kHz and leaves the bands above empty,
which is exact and needs no state, and what comes out is 24 kHz like every stream.
"""

from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import FLOOR, HOP_LENGTH, N_MELS, Floats, hann
from worker.sv2tts.source import FULL, GRIDS, OVERLAP, Grid, PulseSource, Spectra, frame_spectra, noise_spectra

LOOK_AHEAD = 4
"""Frames that the network looks ahead; the synthesis adds two and a half."""

BLOCK = 8
"""Frames that are worked off together. The synthesizer gives four frames and then eights: with four the first chunk
would not leave earlier, and with more it would leave later."""

_FLUSH = LOOK_AHEAD + BLOCK + 2
_VOICED_FROM = 0.5
_OUTPUTS = ("pitch", "voicing", "tone_real", "tone_imag", "noise", "next_cache")
_SILENCE = np.float32(np.log(FLOOR))
_OUT_HOP = FULL.hop
_OUT_WINDOW = FULL.window


@cache
def out_window(grid: Grid) -> Floats:
    """What frames at 24 kHz are weighted with: with the Hann window of the analysis it adds up to one, and it makes up
    for an inverse transform that is longer than the forward one."""
    return hann(_OUT_WINDOW) * np.float32(grid.out_transform / grid.transform / 1.5)


@dataclass(frozen=True, slots=True)
class Filters:
    """What the sources are multiplied with every 5 ms: spectra `tone` complex64[T, bins] and magnitudes `noise`
    float32[T, bins]."""

    tone: Spectra
    noise: Floats

    @classmethod
    def none(cls, bins: int) -> Self:
        """No frames at all."""
        return cls(np.zeros((0, bins), np.complex64), np.zeros((0, bins), np.float32))

    def __len__(self) -> int:
        return len(self.noise)

    def __getitem__(self, part: slice) -> Self:
        return type(self)(self.tone[part], self.noise[part])

    def __add__(self, later: "Filters") -> Self:
        return type(self)(np.concatenate([self.tone, later.tone]), np.concatenate([self.noise, later.noise]))

    def shape(self, pulses: Floats, first: int, grid: Grid) -> Floats:
        """Frames float32[T, 480] at 24 kHz, to be overlap-added 120 apart; `pulses` holds the samples under the T
        windows, `first` is the number of the first frame in the stream."""
        spectra = frame_spectra(pulses, grid) * self.tone + noise_spectra(first, len(self), grid) * self.noise
        frames = np.fft.irfft(spectra, grid.out_transform, axis=1)[:, :_OUT_WINDOW]
        return np.asarray(frames * out_window(grid), np.float32)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the network says of T frames: `pitch` [T] in Hz, `voiced` bool[T], `filters` of 2 T frames of 5 ms."""

    pitch: Floats
    voiced: NDArray[np.bool_]
    filters: Filters

    def since(self, frame: int) -> "Prediction":
        """Without the first frames."""
        return Prediction(self.pitch[frame:], self.voiced[frame:], self.filters[2 * frame :])


class Vocoder:
    """Turns mels into sound with a vocoder graph of a bundle; one instance serves many streams.

    Streams of every graph give 24 kHz, 240 samples a frame.
    """

    def __init__(self, bundle: Bundle, threads: int = 1, graph: str = "vocoder") -> None:
        self._session = bundle.session(graph, threads)
        self.grid = GRIDS[bundle.manifest["vocoders"][graph]["internal_rate"]]
        shape = bundle.manifest["shapes"][graph]["inputs"]["cache"]
        self._cache_shape = (1, int(shape[1]), int(shape[2]))

    def start(self) -> "VocoderStream":
        """A stream for one utterance."""
        return VocoderStream(self, np.zeros(self._cache_shape, np.float32))

    def predict(self, mel: Floats, cache: Floats) -> tuple[Prediction, Floats]:
        """What the network says of the frames LOOK_AHEAD before log-mel float32[T, 80], and the next cache."""
        outputs = self._session.run(_OUTPUTS, {"mel": mel[None], "cache": cache})
        pitch, voicing, real, imaginary, noise = (np.asarray(output, np.float32)[0] for output in outputs[:-1])
        tone = np.empty(real.shape, np.complex64)
        tone.real, tone.imag = real, imaginary
        return Prediction(pitch, voicing > _VOICED_FROM, Filters(tone, noise)), np.asarray(outputs[-1], np.float32)


class VocoderStream:
    """The state of one utterance between pushes.

    Frames are worked off in blocks of eight from the start of the utterance, however they were pushed, because the last
    bits of a matrix product depend on its size and a pitch adds up: so the sound does not depend on the cutting.
    """

    def __init__(self, vocoder: Vocoder, cache: Floats) -> None:
        self._vocoder = vocoder
        self._cache = cache
        self._waiting = np.zeros((0, N_MELS), np.float32)
        self._begun = False
        self._grid = vocoder.grid
        self._source = PulseSource(self._grid)
        self._pulses = np.zeros(self._grid.window // 2, np.float32)
        self._filters = Filters.none(self._grid.bins)
        self._tail = np.zeros(_OUT_WINDOW, np.float32)
        self._frame = 0
        self._due = 0
        self._finished = False

    def push(self, mel: Floats, final: bool = False) -> Floats:
        """The samples float32[N] that log-mel frames float32[T, 80] complete, T >= 0.

        They come up to LOOK_AHEAD + 2.5 frames and a block late; with `final` all that is left comes, so that the
        samples of a stream are 240 times its frames. Raises ValueError after the final push.
        """
        if self._finished:
            raise ValueError("this utterance has had its final frames; start another stream")
        self._finished = final
        self._due += HOP_LENGTH * len(mel)
        self._waiting = np.concatenate([self._waiting, mel])
        if final:
            self._waiting = np.pad(self._waiting, ((0, _FLUSH), (0, 0)), constant_values=_SILENCE)
        pieces = [np.zeros(0, np.float32)]
        while len(self._waiting) >= BLOCK:
            self._predict(self._waiting[:BLOCK])
            self._waiting = self._waiting[BLOCK:]
            pieces.append(self._synthesize())
        samples = np.concatenate(pieces)[: self._due]
        self._due -= len(samples)
        return samples

    def _predict(self, mel: Floats) -> None:
        said, self._cache = self._vocoder.predict(mel, self._cache)
        # What is said of the frames before the stream is of no use.
        said, self._begun = said if self._begun else said.since(LOOK_AHEAD), True
        self._filters += said.filters
        self._pulses = np.concatenate([self._pulses, self._source.extend(said.pitch, said.voiced)])

    def _synthesize(self) -> Floats:
        """Overlap-add the frames whose pulses are known; the samples that no later frame touches."""
        grid = self._grid
        count = len(self._pulses) // grid.hop - OVERLAP + 1
        if count <= 0:
            return np.zeros(0, np.float32)
        pulses = self._pulses[: (count - 1) * grid.hop + grid.window]
        sound = overlap_add(self._filters[:count].shape(pulses, self._frame, grid), self._tail)
        self._pulses, self._filters = self._pulses[count * grid.hop :], self._filters[count:]
        done, self._tail = sound[: count * _OUT_HOP], sound[count * _OUT_HOP :]
        before = max(0, _OUT_WINDOW // 2 - self._frame * _OUT_HOP)
        self._frame += count
        return done[before:]


def overlap_add(frames: Floats, tail: Floats) -> Floats:
    """`tail` float32[480] and frames float32[T, 480], 120 apart and beginning where the tail begins, added up:
    float32[120 T + 480]."""
    sound: NDArray[np.float32] = np.zeros((len(frames) + OVERLAP, _OUT_HOP), np.float32)
    sound[:OVERLAP] += tail.reshape(OVERLAP, _OUT_HOP)
    for part in range(OVERLAP):
        sound[part : part + len(frames)] += frames[:, part * _OUT_HOP : (part + 1) * _OUT_HOP]
    return sound.reshape(-1)
