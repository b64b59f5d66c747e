"""The addresses of the dashboard.

GET  /                                              the page; its parts are in page/
GET  /events                                        what browsers listen to: history, then picture after picture
GET  /api/picture                                   the newest one, for programs
GET  /api/processors/NAME/state?key=K&limit=N       what it keeps on this machine
GET  /api/processors/NAME/letters?limit=N           its newest dead letters
POST /api/processors/NAME/letters/OFFSET/trial      what it would make of one now
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...processors.declare.apps import App, AppName
from ...processors.declare.processor import Processor
from ...processors.errors import AppFileError, PenstockError
from ...state.errors import StateError
from ...transport.bus import Bus
from .access import Access, Guard
from .broadcast import Broadcaster, Message
from .dead_letters import NoSuchDeadLetter, dead_letter_at, newest_dead_letters
from .dry_run_pool import DryRunPool, DryRunRequest, asking
from .states import states_of

PAGE = Path(__file__).parent / "page"
MOST_SHOWN = 500
"""How many values, or dead letters, are shown at most."""


@dataclass(frozen=True)
class Shown:
    """What a dashboard shows.

    Args:
        bus: where the processors are.
        app: whose processors they are; None for all on the bus, whose states and letters cannot be read as they mean them.
        state: the folder of states on this machine.
        title: what the page is called.
    """

    bus: Bus
    app: AppName | None
    state: Path
    title: str

    def processor(self, name: str) -> type[Processor]:
        """Return a processor as its file declares it by now: one that was mended is tried anew.

        Raises:
            AppFileError: there is no app, or no such processor in it.
        """
        return _named(self.expect_app().load(), name)

    def expect_app(self) -> AppName:
        """Return where the app is.

        Raises:
            AppFileError: there is none.
        """
        if self.app is None:
            raise AppFileError(
                "This dashboard was started without an app, and only that knows what the bytes mean: start it as `penstock dashboard APP`."
            )
        return self.app


def _named(app: App, name: str) -> type[Processor]:
    for processor in app.processors:
        if processor.name == name:
            return processor
    raise AppFileError(f"The app has no processor {name!r} (any more).")


def site_of(shown: Shown, watch: Broadcaster, access: Access, trying: DryRunRequest | None = None) -> Starlette:
    """Return what answers browsers.

    Args:
        shown: what they are shown.
        watch: looks for them.
        access: who is let in.
        trying: tries dead letters; by default aside, in processes of their own.
    """
    asked = _Asked(shown, watch, trying or DryRunPool())
    of_processor = "/api/processors/{processor:path}"
    routes = [
        Route("/", asked.page),
        Route("/events", asked.events),
        Route("/api/picture", asked.picture),
        Route(f"{of_processor}/state", asked.state),
        Route(f"{of_processor}/letters", asked.letters),
        Route(f"{of_processor}/letters/{{number:int}}/trial", asked.trial, methods=["POST"]),
        Mount("/page", StaticFiles(directory=PAGE, follow_symlink=True)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={PenstockError: _told},
    )


class _Asked:
    """Answers, one method for each address. Those that wait for a disk or the bus run in threads."""

    def __init__(self, shown: Shown, watch: Broadcaster, trying: DryRunRequest) -> None:
        self._shown = shown
        self._watch = watch
        self._trying = trying

    async def page(self, request: Request) -> Response:  # noqa: ARG002 - the signature of an address
        return FileResponse(PAGE / "index.html")

    async def events(self, request: Request) -> Response:  # noqa: ARG002 - the signature of an address
        return StreamingResponse(self._told(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _told(self) -> AsyncIterator[bytes]:
        yield Message("title", self._shown.title).encoded()
        with self._watch.listening() as listener:
            while (message := await listener.next()) is not None:
                yield message

    async def picture(self, request: Request) -> Response:  # noqa: ARG002 - the signature of an address
        newest = self._watch.newest or Message("trouble", {"says": "Nothing was seen yet: ask again in a second."})
        return _json(newest.content, 200 if newest.kind == "picture" else 503)

    def state(self, request: Request) -> Response:
        processor = self._shown.processor(request.path_params["processor"])
        key = request.query_params.get("key") or None
        try:
            return _json({"shards": states_of(processor, self._shown.state, key, _limit(request))})
        except StateError as error:  # that there is nothing to look at is an answer, too
            return _json({"shards": [], "says": str(error)})

    def letters(self, request: Request) -> Response:
        # Named after the processor, as a worker names them: they can be read without its app.
        category = f"{request.path_params['processor']}.dead_letters"
        found = newest_dead_letters(self._shown.bus, category, _limit(request))
        return _json({"letters": found, "can_try": self._shown.app is not None})

    def trial(self, request: Request) -> Response:
        shown, name, number = self._shown, request.path_params["processor"], request.path_params["number"]
        app = shown.expect_app()
        letter = dead_letter_at(shown.bus, f"{name}.dead_letters", number)
        trial = self._trying.answer(asking(app, name, letter, shown.bus, shown.state))
        return Response(trial, media_type="application/json")


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "")
    return min(int(text), MOST_SHOWN) if text.isdecimal() else 20


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def _told(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature of a handler
    return _json({"says": str(error)}, 404 if isinstance(error, (NoSuchDeadLetter, AppFileError)) else 409)
