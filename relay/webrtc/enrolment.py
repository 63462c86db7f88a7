"""From a peer's microphone to a voice: who may, for how long, and what the client is told."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import structlog
from pydantic import SecretStr

from relay.api.services import Services
from relay.api.visits import Visit, enter
from relay.dialects.voices import make_offered
from relay.entrance.rate_limits import Rate
from relay.errors import InvalidMessage, RelayError
from relay.webrtc.capture import CaptureState, Recorder
from relay.webrtc.messages import StartCapture
from storage.errors import StorageError
from storage.tenancy.api_keys import Deed, Scope

log = structlog.get_logger()

_SCOPES = frozenset({Scope.ENROL, Scope.ADMIN})


@dataclass(slots=True)
class Enrolment:
    """One peer's; holds a place for its recording from the first sample on, as uploads do."""

    services: Services
    key: SecretStr
    origin: str
    _recorder: Recorder = field(default_factory=Recorder)
    _asked: StartCapture | None = None
    _visit: Visit | None = None
    _place: ExitStack = field(default_factory=ExitStack)

    @property
    def recording(self) -> bool:
        """Whether the microphone is wanted."""
        return self._recorder.state is CaptureState.RECORDING

    @property
    def full(self) -> bool:
        """Whether no more can be recorded."""
        return self.recording and self._recorder.full

    async def start(self, asked: StartCapture) -> None:
        """Let the microphone be recorded; raises RelayError when this client may not, or does so already."""
        if self._recorder.state is not CaptureState.IDLE:
            raise InvalidMessage("a recording is under way already; stop it first", field="action")
        visit = await enter(
            self.services,
            self.key.get_secret_value(),
            self.origin,
            scopes=_SCOPES,
            deed=Deed.CHANGE,
            rate=Rate.UPLOAD,
        )
        self._place.enter_context(self.services.uploads.take(visit.tenant))
        self._recorder.start()
        self._asked, self._visit = asked, visit

    def add(self, samples: npt.NDArray[np.int16], pts: int) -> None:
        """What the microphone hears."""
        self._recorder.add(samples, pts)

    async def finish(self) -> dict[str, object]:
        """Make a voice of what was recorded: the message for the client; raises RelayError."""
        seconds = self._recorder.seconds
        recording = self._recorder.stop()
        asked, visit = self._asked, self._visit
        assert asked is not None and visit is not None  # noqa: S101 - they come with the recording
        try:
            voice = await make_offered(
                self.services, visit, name=asked.name, consent=asked.consent, recording=recording
            )
        except StorageError as error:
            log.warning("a captured voice could not be made", reason=type(error).__name__)
            raise RelayError("a fault of ours; record again") from error
        finally:
            self.discard()
        shown = {"name": voice.name, "state": voice.state.value, "seconds": round(seconds, 2)}
        return {"type": "captured", "voice": str(voice.id), **shown}

    def discard(self) -> None:
        """Nothing is kept of a recording."""
        self._recorder.end()
        self._asked = self._visit = None
        self._place.close()
