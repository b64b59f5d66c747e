"""Pipes as processors of an app: for `penstock run`, `deploy`, `replay` and the other commands."""

from __future__ import annotations

import penstock as ps

log = ps.Category("log", ps.Line, key="key", event_time="at", codec=ps.codecs.Lines())
errors = ps.Category("errors", ps.Line, key="key", event_time="at", codec=ps.codecs.Lines())


class Errors(ps.Pipe):
    """Copies the lines of the log that contain ERROR, with a script in Perl."""

    reads, writes = log, errors
    command = ("./errors.pl",)
