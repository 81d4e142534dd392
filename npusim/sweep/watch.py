"""What a running sweep tells, without a word about how it is shown."""


class Watcher:
    """What a sweep tells while it runs; this one listens and says nothing."""

    def start(self, total: int, done: int, programs: int) -> None:
        """Trials planned, trials found finished, programs to compile."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def compiled(self, seconds: float) -> None:
        """A program has been compiled."""

    def advance(self, trials: int, what: str) -> None:
        """So many more trials are finished; ``what`` they were."""
