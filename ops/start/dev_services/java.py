"""The Java runtime of the services. Its version is checked before a service starts."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....backfill.spark import INSTALL, OLDEST, java_candidates, java_version
from .errors import JavaMissingError, JavaTooOldError, ServiceFailedError
from .service import MARKER

# In the syntax of Log4j. The console output is the log of the service.
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
    """A Java runtime: the path of `java`, and its major version."""

    path: Path
    major: int

    def command(
        self, main: str, arguments: Sequence[str], *, classpath: Sequence[str], options: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the command line of a Java program.

        Args:
            main: the class to run.
            arguments: its arguments.
            classpath: jars, folders, and `folder/*` for all jars of a folder; the first entry with a class counts.
            options: options of the Java virtual machine.
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
        """Return the command line of a long-running Java program, with the marker that identifies its process.

        Args:
            main: the class to run.
            arguments: its arguments.
            classpath: as in `command`.
            logging: the file with `QUIET_LOGGING`.
            heap_mb: the largest heap, in MiB.
            options: additional options of the Java virtual machine.
        """
        # The serial collector suits small heaps, and leaves the cores to the programs under development.
        own = (f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", f"-Dpenstock.marker={MARKER}", _logging_option(logging))
        return self.command(main, arguments, classpath=classpath, options=(*own, *options))

    def run(
        self, main: str, arguments: Sequence[str], *, classpath: Sequence[str], logging: Path, limit_s: float
    ) -> None:
        """Run a short Java program until it ends, and kill it after the limit. The arguments are as in `service_command`.

        Raises:
            ServiceFailedError: it failed, or exceeded the limit.
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
            raise ServiceFailedError(
                f"{main} {arguments[0]} exceeded its limit of {limit_s:g} s and was killed. The service was not started."
            ) from error
        if done.returncode:
            raise ServiceFailedError(
                f"{main} {arguments[0]} failed with code {done.returncode} and printed:\n{done.stdout.strip()}"
            )


def find_java() -> Java:
    """Return the first sufficiently new Java, from JAVA_HOME or PATH.

    Raises:
        JavaMissingError: neither contains a working `java`.
        JavaTooOldError: every Java is older than 17.
    """
    found = [Java(path, major) for path in java_candidates() if (major := java_version(path)) is not None]
    for java in found:
        if java.major >= OLDEST:
            return java
    if found:
        versions = " and ".join(f"Java {java.major} ({java.path})" for java in found)
        raise JavaTooOldError(
            f"The local services need Java {OLDEST} or newer, but only {versions} was found. No service was started. {INSTALL}"
        )
    raise JavaMissingError(
        f"The local services need Java, and neither JAVA_HOME nor PATH contains a working `java`. No service was started. {INSTALL}"
    )


def _logging_option(logging: Path) -> str:
    return f"-Dlog4j2.configurationFile={logging}"
