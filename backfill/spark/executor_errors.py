"""What an executor lacks to run Python at all, as its traceback or its JVM says, in a paragraph.

What a worker meets once it runs, it says itself (see `failures`); before that, Spark has only its own words for it.
"""

from __future__ import annotations

import re

_LACKS = {
    r"ModuleNotFoundError: No module named '(?P<what>[^']+)'": (
        "The Python of an executor does not have the module {what}, which Penstock needs there. Penstock itself is sent to executors; what "
        "it depends on is not. Install the same packages on every machine, or send an environment that has them (`spark.archives`, and "
        "PYSPARK_PYTHON for the Python in it)."
    ),
    r"PYTHON_VERSION_MISMATCH\] (?P<what>Python in worker has different version[^,\n]*)": (
        "{what}. Both have to be of one minor version. Set PYSPARK_PYTHON to a Python that every machine has in that version, or send an "
        "environment (`spark.archives`)."
    ),
    r'Cannot run program "(?P<what>[^"]+)"': (
        "There is no Python at {what} on a machine of the cluster. Set PYSPARK_PYTHON to where it is there; by default it is the path of "
        "the Python that runs this command."
    ),
}
"""What to say, by the words that give it away."""


def missing_requirement(told: str) -> str | None:
    """Return what an executor lacks, and what to do about it; None where what Spark told says nothing of that."""
    for words, paragraph in _LACKS.items():
        found = re.search(words, told)
        if found:
            return paragraph.format(what=found["what"])
    return None
