"""The worker's errors.

WorkerError
├── BundleError        a voice model folder that cannot be served
├── LexiconError       a user lexicon that cannot be read
├── RecordingError     a reference recording that cannot become a voice
├── EnrolmentTaken     a version that another process enrols at this moment
├── TrainingError      a training run that cannot begin or go on
├── BackendUnavailable a way to run the models that this machine does not have
├── NonFinite          a model gave what is no number
├── VoiceUnavailable   the job's voice cannot be spoken with
└── NothingToSay       a sentence without a single sound
"""

from __future__ import annotations


class WorkerError(Exception):
    """Base of everything that goes wrong in the engine room.

    `code` is what travels to the client, `retryable` says whether the same request can succeed later.
    """

    code = "internal"
    retryable = True


class BundleError(WorkerError):
    """Raised when a bundle is missing, damaged, or its parts do not fit each other."""

    code = "bundle_invalid"
    retryable = False

    def __init__(self, root: object, reason: str, fix: str) -> None:
        super().__init__(f"bundle {root}: {reason}; {fix}")
        self.root = root
        self.reason = reason
        self.fix = fix


class LexiconError(WorkerError):
    """Raised when a user lexicon cannot be read; `line` is 0 when it is about the whole file."""

    code = "lexicon_invalid"
    retryable = False

    def __init__(self, path: object, line: int, reason: str) -> None:
        super().__init__(f"lexicon {path}{f', line {line}' if line else ''}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class RecordingError(WorkerError):
    """Raised when a reference recording cannot become a voice; the text names the fix."""

    retryable = False

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class EnrolmentTaken(WorkerError):
    """Raised when another process has the version for itself; `wait_s` says for how long it may have it."""

    code = "enrolment_taken"

    def __init__(self, voice: object, version: int, wait_s: float) -> None:
        super().__init__(f"version {version} of voice {voice} is being enrolled by another process")
        self.wait_s = wait_s


class TrainingError(WorkerError):
    """Raised when a training run cannot begin or go on; the text names the stage or the folder, the reason, the fix."""

    code = "training_failed"
    retryable = False


class BackendUnavailable(WorkerError):
    """Raised when the models cannot be run in the way that was asked for; says why and what helps."""

    code = "backend_unavailable"
    retryable = False

    def __init__(self, backend: str, reason: str, fix: str) -> None:
        super().__init__(f"backend {backend} cannot be used: {reason}; {fix}")
        self.backend = backend
        self.reason = reason
        self.fix = fix


class NonFinite(WorkerError):
    """Raised when a model's output holds NaN or infinity: the sentence fails, and only that sentence."""

    code = "synthesis_failed"
    retryable = True

    def __init__(self, stage: str) -> None:
        super().__init__(f"the {stage} gave numbers that are not finite, so the sentence was stopped; try again")
        self.stage = stage


class VoiceUnavailable(WorkerError):
    """Raised when the voice a job asks for is not there (any more)."""

    code = "voice_unavailable"
    retryable = False

    def __init__(self, voice: str) -> None:
        super().__init__(f"voice {voice} cannot be spoken with: it does not exist, is not ready, or was deleted")
        self.voice = voice


class NothingToSay(WorkerError):
    """Raised when a sentence holds nothing that has a sound."""

    code = "nothing_to_say"
    retryable = False

    def __init__(self) -> None:
        super().__init__("the sentence holds nothing that can be spoken; send words or digits in English")
