"""Base errors, by the reaction that they require."""

from typing import TypeAlias

UserCodeError: TypeAlias = Exception | SystemExit | GeneratorExit
"""An exception of user code. `sys.exit` in a processor is an error like others, and so is a GeneratorExit that it raises."""
USER_CODE_ERRORS = (Exception, SystemExit, GeneratorExit)


class PenstockError(Exception):
    """Base class of all errors of Penstock. The message says what happened, what it means for the data, and what to do."""

    def add(self, sentence: str) -> None:
        """Add a sentence to the end of the message, for a cause that only a caller knows."""
        self.args = (f"{self} {sentence}",)


class DeclarationError(PenstockError):
    """A category, processor or app cannot work as declared. Change the program."""


class NotLoadable(PenstockError):
    """An app or a statement cannot be loaded. Correct the program.

    Args:
        fault: what is wrong, and where.
        advice: how to correct it.
    """

    consequence = ""
    """What the fault means for the data, to show before the advice. Only the command that loads an app knows it."""

    def __init__(self, fault: str, advice: str = "") -> None:
        super().__init__(fault, advice)
        self.fault, self.advice = fault, advice

    def add(self, sentence: str) -> None:
        """Add a sentence to the advice."""
        self.advice = f"{self.advice} {sentence}".lstrip()

    def __str__(self) -> str:
        return " ".join(filter(None, (self.fault, self.consequence, self.advice)))


class AppFileError(NotLoadable):
    """An app file is missing, does not import, or declares no processor. Correct the file or its path."""


class DeclarationChanged(PenstockError):
    """A processor does not fit what a processor of the same name has read or saved. Restore the declaration, or rename the processor.

    Args:
        message: the message.
        processor: the name of the processor.
    """

    def __init__(self, message: str, processor: str) -> None:
        super().__init__(message)
        self.processor = processor


class ProcessorFailed(PenstockError):
    """The code of a processor failed, not because of a single event. Nothing was saved. Correct the program."""


class Deferred(PenstockError):
    """A batch cannot be processed at the moment, for an external reason. No event of it was processed. Retry the batch."""


class Halted(PenstockError):
    """A batch cannot be processed, for an external reason. No event of it was processed. Save everything before it, and stop."""


def interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interruption during whose handling an error was raised, such as by a cleanup; None without one."""
    context = error.__context__
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context
