"""`penstock run` from a script: `python app.py`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from ....command import main
from ....processors import AppFileError
from ....processors.apps import expect_not_loading
from ....processors.declare import Processor


def run(processor: type[Processor] | None = None) -> None:
    """Run a processor, or all processors of the script, as `penstock run` does, with the script's command-line arguments. Does not return.

    `python app.py --until-end` equals `penstock run app.py:Totals --until-end` if `app.py` ends with:

        if __name__ == "__main__":
            ps.run(Totals)

    Args:
        processor: the processor; None for all processors of the script.

    Raises:
        AppFileError: the call is not inside `if __name__ == "__main__":`, or no file declares the processor.
    """
    expect_not_loading("ps.run()" if processor is None else f"ps.run({processor.__name__})")
    module = "__main__" if processor is None else processor.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise AppFileError(
            f"ps.run found no file of {module}. Nothing was started. Declare the processor in a file, because other processes import it, too."
        )
    path = Path(file)
    with suppress(ValueError):
        path = path.relative_to(Path.cwd())
    target = os.fspath(path) if processor is None else f"{path}:{processor.__name__}"
    sys.argv = ["penstock", "run", target, *sys.argv[1:]]
    main()
    sys.exit(0)
