"""The Java that the services run on: found, and known to be new enough before anything is started."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...backfill.spark.prerequisites import INSTALL, OLDEST, java_candidates, java_version
from .errors import JavaMissingError, JavaTooOldError, ServiceFailedError
from .service import MARKER

# Log4j's own syntax; what is printed ends in the log of the service.
QUIET_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` that was run once and told its version."""

    path: Path
    major: int

    def command(
        self, main: str, arguments: Sequence[str], *, classpath: Sequence[str], options: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the command line of a Java program.

        Args:
            main: the class to run.
            arguments: what the class gets.
            classpath: jars, folders, and `folder/*` for all jars of a folder; the first one to hold a class wins.
            options: heap and system properties.
        """
        return (str(self.path), *options, "-cp", os.pathsep.join(classpath), main, *arguments)

    def service_command(
        self,
        main: str,
        arguments: Sequence[str],
        *,
        classpath: Sequence[str],
        logging: Path,
        heap_mb: int,
        options: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Return the command line of a long-running Java program, marked so that its process can be recognised.

        Args:
            main: the class to run.
            arguments: what the class gets.
            classpath: as of `command`.
            logging: a file that holds `QUIET_LOGGING`.
            heap_mb: the most it may use for objects, in MiB.
            options: further ones of the Java machine.
        """
        # The serial collector: heaps are small, and the cores belong to what is being developed.
        own = (f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", f"-Dpenstock.marker={MARKER}", _logging_option(logging))
        return self.command(main, arguments, classpath=classpath, options=(*own, *options))

    def run(
        self, main: str, arguments: Sequence[str], *, classpath: Sequence[str], logging: Path, limit_s: float
    ) -> None:
        """Run a short Java program to its end, killed after the limit; arguments as of `service_command`.

        Raises:
            ServiceFailedError: it failed, or took longer than the limit.
        """
        command = self.command(main, arguments, classpath=classpath, options=(_logging_option(logging),))
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ServiceFailedError(f"{main} {arguments[0]} took longer than {limit_s:g} s and was ended.") from error
        if done.returncode:
            raise ServiceFailedError(
                f"{main} {arguments[0]} failed with code {done.returncode} and printed:\n{done.stdout.strip()}"
            )


def find_java() -> Java:
    """Return the first Java that is new enough, JAVA_HOME before PATH.

    Raises:
        JavaMissingError: neither leads to a `java` that runs.
        JavaTooOldError: what was found is older than 17.
    """
    found = [Java(path, major) for path in java_candidates() if (major := java_version(path)) is not None]
    for java in found:
        if java.major >= OLDEST:
            return java
    if found:
        seen = " and ".join(f"Java {java.major} ({java.path})" for java in found)
        raise JavaTooOldError(f"The local services need Java {OLDEST} or newer, but only {seen} was found. {INSTALL}")
    raise JavaMissingError(
        f"The local services run on Java, and no working `java` was found by JAVA_HOME or on PATH. {INSTALL}"
    )


def _logging_option(logging: Path) -> str:
    return f"-Dlog4j2.configurationFile={logging}"
