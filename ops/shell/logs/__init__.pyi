from .setup import LogFormat as LogFormat
from .setup import LogLevel as LogLevel
from .setup import configure_logging as configure_logging
from .setup import logs_json as logs_json
from .setup import reopen_standard_streams as reopen_standard_streams
