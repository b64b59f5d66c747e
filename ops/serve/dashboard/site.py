"""The HTTP API of the dashboard.

GET  /                                                   the page; its files are in page/
GET  /events                                             the event stream: title, columns, history, and each new status
GET  /api/status                                         the status, for programs; with 503 the reason why there is none, and the last known one
GET  /api/processors/NAME/state?key=K&limit=N            the processor's state on this machine
GET  /api/processors/NAME/dead-letters?limit=N           its newest dead letters
GET  /api/processors/NAME/logs?worker=N&limit=N          the last lines of its workers' logs on this machine
GET  /api/processors/NAME/versions                       the versions of its deployment from this machine
POST /api/processors/NAME/dead-letters/OFFSET/dry-run    a dry run of one of them

For operators, with the output of the command:
POST /api/processors/NAME/rollback                       returns its deployment to the last good version
POST /api/processors/NAME/scale                          {"workers": N} changes its number of workers
POST /api/processors/NAME/silence                        {"rule": R, "span": "2h", "reason": W} silences an alert
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ....processors import AppFileError, PenstockError, ShardFigures, WorkerFigures, columns_of
from ....processors.apps import AppName
from ....processors.declare import Processor
from ....state import StateError
from ....transport import Bus
from ...http import Access, JsonAnswer, PageMiddleware, Visitor, create_application, decoded_body
from .broadcast import Broadcaster, MessageKind, PageMessage
from .dead_letters import NoSuchDeadLetter, dead_letter_at, newest_dead_letters
from .deployment import logs_of, versions_of
from .dry_run_pool import DryRunner, DryRunPool, new_request
from .operations import OperationRefused, OperationRunner, rollback, scale, silence
from .states import states_of

_Body = TypeVar("_Body")
PAGE = Path(__file__).parent / "page"
DEFAULT_LIMIT = 20
"""The default number of values, dead letters or log lines in an answer."""
COLUMNS = {"worker": columns_of(WorkerFigures), "shard": columns_of(ShardFigures)}
"""The titles of the columns of figures, by the name of the figure."""
MAX_LIMIT = 500
"""The largest number of values, dead letters or log lines in an answer."""


@dataclass(frozen=True)
class SiteContent:
    """The sources of a dashboard's content.

    Args:
        bus: the bus of the processors.
        app: the app of the processors; None for all processors on the bus, whose states and dead letters the dashboard cannot decode.
        folder: the folder of states, logs and deployments on this machine; the value of `--dir`.
        title: the title of the page.
    """

    bus: Bus
    app: AppName | None
    folder: Path
    title: str

    @property
    def state(self) -> Path:
        """The folder of states."""
        return self.folder / "state"

    def processor(self, name: str) -> type[Processor]:
        """Load a processor from the current app file, so that a dry run uses a corrected one.

        Raises:
            AppFileError: there is no app, or it has no such processor.
        """
        for processor in self.expect_app().load().processors:
            if processor.name == name:
                return processor
        raise AppFileError(f"The app has no processor {name!r}. Check the current app file.")

    def expect_app(self) -> AppName:
        """Return the name of the app.

        Raises:
            AppFileError: there is none.
        """
        if self.app is None:
            raise AppFileError(
                "This dashboard runs without an app, so it cannot decode states. Start it as `penstock serve dashboard APP`."
            )
        return self.app


def create_site(
    content: SiteContent,
    broadcaster: Broadcaster,
    access: Access,
    dry_runner: DryRunner | None = None,
    operator: OperationRunner | None = None,
) -> Starlette:
    """Return the web application of the dashboard.

    Args:
        content: the sources of its content.
        broadcaster: the source of the status.
        access: the access rules.
        dry_runner: runs dry runs; by default in separate processes.
        operator: runs operations; None for a site that only reads.
    """
    handlers = _Handlers(content, broadcaster, dry_runner or DryRunPool(), operator)
    processor = "/api/processors/{processor:path}"
    routes = [
        Route("/", handlers.page),
        Route("/events", handlers.events),
        Route("/api/status", handlers.status),
        Route(f"{processor}/state", handlers.state),
        Route(f"{processor}/dead-letters", handlers.dead_letters),
        Route(f"{processor}/logs", handlers.logs),
        Route(f"{processor}/versions", handlers.versions),
        Route(f"{processor}/dead-letters/{{offset:int}}/dry-run", handlers.dry_run, methods=["POST"]),
        Route(f"{processor}/rollback", handlers.rollback, methods=["POST"]),
        Route(f"{processor}/scale", handlers.scale, methods=["POST"]),
        Route(f"{processor}/silence", handlers.silence, methods=["POST"]),
        Mount("/page", StaticFiles(directory=PAGE, follow_symlink=True)),
    ]
    # All other errors are about the present state of processors, which the visitor may change.
    statuses = {NoSuchDeadLetter: 404, AppFileError: 404, NoOperator: 403, PenstockError: 409}
    return create_application(routes, access, statuses, guard=PageMiddleware)


class _Handlers:
    """The request handlers, one for each route. Handlers that wait for a disk or for Kafka run in threads."""

    def __init__(
        self, content: SiteContent, broadcaster: Broadcaster, dry_runner: DryRunner, operator: OperationRunner | None
    ) -> None:
        self._content = content
        self._broadcaster = broadcaster
        self._dry_runner = dry_runner
        self._operator = operator

    async def page(self, request: Request) -> Response:  # noqa: ARG002 - the signature of a handler
        return FileResponse(PAGE / "index.html")

    async def events(self, request: Request) -> Response:
        stream = self._stream(request.state.visitor)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _stream(self, visitor: Visitor) -> AsyncIterator[bytes]:
        may_operate = visitor.role.may_operate and self._operator is not None
        yield PageMessage(MessageKind.VISITOR, {"user": visitor.user, "may_operate": may_operate}).encoded()
        yield PageMessage(MessageKind.TITLE, self._content.title).encoded()
        yield PageMessage(MessageKind.COLUMNS, COLUMNS).encoded()
        with self._broadcaster.subscribed() as subscription:
            while (message := await subscription.next()) is not None:
                yield message

    async def status(self, request: Request) -> Response:  # noqa: ARG002 - the signature of a handler
        latest = self._broadcaster.latest
        if latest is None:
            return JsonAnswer({"message": "The first status is not there yet. Retry in a second."}, 503)
        if latest.kind is MessageKind.STATUS:
            return JsonAnswer(latest.content)
        return JsonAnswer({**latest.content, "last_status": self._broadcaster.last_status}, 503)

    def state(self, request: Request) -> Response:
        processor = self._content.processor(request.path_params["processor"])
        key = request.query_params.get("key") or None
        try:
            return JsonAnswer({"shards": states_of(processor, self._content.state, key, _limit(request))})
        except StateError as error:  # a processor without a local state is no failure
            return JsonAnswer({"shards": [], "message": str(error)})

    def dead_letters(self, request: Request) -> Response:
        # The category's name follows from the processor's, so its dead letters are readable without the app.
        category = f"{request.path_params['processor']}.dead_letters"
        letters = newest_dead_letters(self._content.bus, category, _limit(request))
        return JsonAnswer(
            {
                "dead_letters": letters,
                "can_dry_run": self._content.app is not None and _visitor(request).role.may_dry_run,
            }
        )

    def logs(self, request: Request) -> Response:
        worker = request.query_params.get("worker", "")
        number = int(worker) if worker.isdecimal() else None
        return JsonAnswer(logs_of(self._content.folder, request.path_params["processor"], number, _limit(request)))

    def versions(self, request: Request) -> Response:
        return JsonAnswer({"versions": versions_of(self._content.folder, request.path_params["processor"])})

    def dry_run(self, request: Request) -> Response:
        if not _visitor(request).role.may_dry_run:
            return JsonAnswer(
                {"message": "A dry run executes the app's code. Viewers may only read: ask an operator."}, 403
            )
        content, name, offset = self._content, request.path_params["processor"], request.path_params["offset"]
        app = content.expect_app()
        letter = dead_letter_at(content.bus, f"{name}.dead_letters", offset)
        result = self._dry_runner.run(new_request(app, name, letter, content.bus, content.state))
        return Response(result, media_type="application/json")

    def rollback(self, request: Request) -> Response:
        return self._operated(request, rollback(_name(request)), self._operator_of(request))

    async def scale(self, request: Request) -> Response:
        return await self._asked(request, ScaleRequest, lambda wanted: scale(_name(request), wanted.workers))

    async def silence(self, request: Request) -> Response:
        return await self._asked(
            request,
            SilenceRequest,
            lambda wanted: silence(_name(request), wanted.rule, wanted.span, wanted.reason),
        )

    async def _asked(self, request: Request, kind: type[_Body], words: Callable[[_Body], list[str]]) -> Response:
        operator = self._operator_of(request)  # before the body is read
        wanted = await decoded_body(request, kind, OperationRefused)
        return await run_in_threadpool(self._operated, request, words(wanted), operator)

    def _operated(self, request: Request, words: list[str], operator: OperationRunner) -> Response:
        return JsonAnswer(operator.run(words, _visitor(request).user))

    def _operator_of(self, request: Request) -> OperationRunner:
        """Return what runs operations for the visitor.

        Raises:
            NoOperator: the visitor may not operate.
        """
        if self._operator is None or not _visitor(request).role.may_operate:
            raise NoOperator(
                "Only operators change deployments and alerts, and you are none. Nothing was changed. Use the token of operators, or ask "
                "for a group of operators."
            )
        return self._operator


class NoOperator(PenstockError):
    """A visitor may not operate."""


def _name(request: Request) -> str:
    name: str = request.path_params["processor"]
    return name


def _visitor(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor


class ScaleRequest(msgspec.Struct, frozen=True):
    """A number of workers."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class SilenceRequest(msgspec.Struct, frozen=True):
    """A time without notifications of an alert."""

    rule: str
    span: str
    reason: str = ""


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "")
    return min(int(text), MAX_LIMIT) if text.isdecimal() else DEFAULT_LIMIT
