"""What the judge reports instead of a traceback."""

from worker.errors import WorkerError


class JudgingError(WorkerError):
    """Raised when something cannot be judged or promoted; the text names the thing, the reason and the fix."""

    code = "judging_failed"
    retryable = False

    def __init__(self, thing: object, reason: str, fix: str) -> None:
        super().__init__(f"{thing}: {reason}; {fix}")
        self.thing = thing
        self.reason = reason
        self.fix = fix
