"""MP4, M4A and WebM, by FFmpeg, held to two demuxers, seven decoders and the bytes it is given.

The demuxer is named, not guessed, so that a playlist cannot pass for a film; the decoders are a list; no protocol is
allowed, and what FFmpeg asks to open beside the bytes is refused. What a browser's MediaRecorder writes has no length
and clusters of unknown size (Matroska, RFC 9559) or comes in fragments (ISO 14496-12).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import av
import av.subtitles.stream  # av does it when it opens a file, and by then nothing can be imported any more
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from worker.enrolment.file_kinds import refuse_damage
from worker.enrolment.gathering import BLOCK_COUNT, Samples, Sound

_DEMUXERS = {"MP4": "mov", "WEBM": "matroska"}
_DECODERS = ("aac", "alac", "flac", "libopus", "mp3float", "opus", "vorbis")
_OPTIONS = {
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm",
    "codec_whitelist": ",".join(_DECODERS),
    "protocol_whitelist": "none",
    "max_streams": "16",
    "enable_drefs": "0",
    "use_absolute_path": "0",
}
_PACKET_COUNT = 200_000
_FULL_SCALE = {"u8": 2.0**7, "s16": 2.0**15, "s32": 2.0**31, "flt": 1.0, "dbl": 1.0}


@contextmanager
def open_media(data: bytes, container: str) -> Iterator[Sound]:
    """The first sound of a container, `MP4` or `WEBM`, decoded packet by packet.

    Raises:
        RecordingError: `recording_not_audio` with the reason: damaged, without sound, or in another codec.
    """
    try:
        with av.open(
            io.BytesIO(data),
            "r",
            format=_DEMUXERS[container],
            options=_OPTIONS,
            metadata_errors="replace",
            io_open=_refuse,
        ) as file:
            stream = _choose_stream(file)
            yield Sound(
                source_format=f"{container}/{stream.codec_context.name.upper()}",
                rate=stream.codec_context.sample_rate,
                channels=stream.codec_context.channels,
                length_s=None,
                blocks=_decode(file, stream),
            )
    except (av.FFmpegError, ValueError, EOFError) as error:
        words = str(getattr(error, "strerror", "") or type(error).__name__)
        raise refuse_damage(words) from error


def _refuse(url: str, flags: int, options: dict[str, str]) -> None:
    raise PermissionError("a recording may not name another file")


def _choose_stream(file: InputContainer) -> AudioStream:
    if not file.streams.audio:
        raise refuse_damage("it has no sound")
    stream = file.streams.audio[0]
    if stream.codec_context is None or stream.codec_context.name not in _DECODERS:
        raise refuse_damage("its codec is none of AAC, ALAC, Opus, Vorbis, FLAC and MP3")
    stream.codec_context.thread_count = 1
    return stream


def _decode(file: InputContainer, stream: AudioStream) -> Iterator[Samples]:
    """Frames joined to blocks of a second at least; damage ends the sound where something came before it."""
    rate, channels = stream.codec_context.sample_rate, stream.codec_context.channels
    pending: list[Samples] = []
    waiting = blocks = 0
    for frame in _read_frames(file, stream):
        if (frame.sample_rate, len(frame.layout.channels)) != (rate, channels):
            raise refuse_damage("its sample rate or its channels change in the middle")
        pending.append(_to_float(frame))
        waiting += len(pending[-1])
        if waiting >= rate:
            yield np.concatenate(pending)
            pending, waiting, blocks = [], 0, blocks + 1
        if blocks >= BLOCK_COUNT:
            return
    if pending:
        yield np.concatenate(pending)


def _read_frames(file: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
    found = False
    packets = file.demux(stream)
    for _ in range(_PACKET_COUNT):
        try:
            packet = next(packets, None)
            frames = [] if packet is None else packet.decode()
        except av.FFmpegError:
            if not found:
                raise
            return
        if packet is None:
            return
        for frame in frames:
            found = True
            yield frame


def _to_float(frame: AudioFrame) -> Samples:
    """Samples float32 [N, channels] with a full scale of one."""
    kind = frame.format.name.removesuffix("p")
    values = frame.to_ndarray()
    table = values.T if frame.format.is_planar else values.reshape(-1, len(frame.layout.channels))
    centred = table.astype(np.float64) - (_FULL_SCALE["u8"] if kind == "u8" else 0.0)
    return np.asarray(centred / _FULL_SCALE[kind], np.float32)
