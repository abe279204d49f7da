"""The application: receiver and viewer under one guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route

from clew.allow_list import AllowList
from clew.sources import Source
from clew.store.access import AccessLog
from clew.store.prompt_index import PromptReader
from clew.store.writer import Writer
from clew.web.access import Authenticator
from clew.web.bodies import Bodies, Limits
from clew.web.gate import AccessControl, check_exposure
from clew.web.guard import Guard
from clew.web.pages import Pages
from clew.web.receiver import Receiver
from clew.web.views import Views

if TYPE_CHECKING:
    from clew.web.play import PlayPages


def create_app(
    writer: Writer,
    source: Source,
    *,
    address: str,
    host: str = "127.0.0.1",
    names: Iterable[str] = (),
    limits: Limits | None = None,
    allow_list: AllowList | None = None,
    prompts: PromptReader | None = None,
    authenticator: Authenticator | None = None,
    digest_of: Callable[[str], str] | None = None,
    play: Callable[[Views], PlayPages] | None = None,
) -> Starlette:
    """Return the ASGI application.

    Args:
        writer: where received spans go.
        source: what the viewer reads.
        address: where it is served, for the instructions on an empty page.
        host: the address that it is bound to.
        names: Host names that are answered besides `host` and those of loopback.
        limits: bounds of the receiver.
        allow_list: what timelines may show of a span's attributes; by default the default list.
        prompts: recorded model calls; without it there are no pages about them.
        authenticator: tells who sends a request; without one everybody may read everything, which
            is refused where others than this machine can reach the address.
        digest_of: the keyed digest of an actor's id as runs have it, for what is a reader's own.
        play: makes the pages of the playground; without it there are none.

    Raises:
        ClewError: the address can be reached by others, and there is no authenticator.
    """
    check_exposure(host, authenticator)
    bodies = Bodies(limits or Limits())
    pages = Pages(
        source,
        address=address,
        allow_list=allow_list,
        prompts=prompts,
        signs_in=authenticator is not None,
        play=play,
    )
    dropping = Receiver(bodies, None)
    return Starlette(
        routes=[
            Route("/v1/traces", Receiver(bodies, writer), methods=["POST"]),
            Route("/v1/metrics", dropping, methods=["POST"]),
            Route("/v1/logs", dropping, methods=["POST"]),
            *pages.routes(),
        ],
        middleware=[
            Middleware(Guard, host=host, names=tuple(names)),
            Middleware(GZipMiddleware, minimum_size=4096, compresslevel=5),
            _control(authenticator, digest_of, prompts, pages.views),
        ],
        exception_handlers={HTTPException: pages.failure},
    )


def _control(
    authenticator: Authenticator | None,
    digest_of: Callable[[str], str] | None,
    prompts: PromptReader | None,
    views: Views,
) -> Middleware:
    return Middleware(
        AccessControl,
        authenticator=authenticator,
        digest_of=digest_of or _nobody,
        log=None if prompts is None else AccessLog(prompts.folder),
        views=views,
    )


def _nobody(identity: str) -> str:  # noqa: ARG001 - where no key is known, nobody owns a run
    return ""
