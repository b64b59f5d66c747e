"""Errors by what the reader of the message has to do next."""


class PenstockError(Exception):
    """Anything Penstock reports: its text is a finished paragraph for the person at the terminal."""


class DeclarationError(PenstockError):
    """A category, processor or app is declared in a way that cannot work: change the program."""


class AppFileError(PenstockError):
    """An app file cannot be read, imported or holds nothing to run: fix the file or the name given."""


class ProcessorFailed(PenstockError):
    """A processor's own code failed where no single event is to blame: mend the program; nothing was saved."""


class Deferred(PenstockError):
    """A batch cannot be processed just now, for a reason outside of it; nothing of it was: give it again."""


class Halted(PenstockError):
    """A batch cannot be processed, for a reason outside of it; nothing of it was: save what came before, and stop."""
