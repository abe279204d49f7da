"""Pages about snippets and skills: what is in the store, and what each tag chooses."""

from __future__ import annotations

import json
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clew.prompts import forms
from clew.prompts.snippets import parse_tags, unmatched
from clew.store.snippets import SqliteRepository
from clew.web import prompt_words
from clew.web.access import CONTENT, require_all_tenants
from clew.web.views import NotFoundError, Views, json_response, twin_of, wants_json


class SnippetPages:
    """The routes below `/snippets` and `/skills`.

    Args:
        path: the file of the store.
        views: what renders.
    """

    def __init__(self, path: Path, views: Views) -> None:
        self._repository = SqliteRepository(path)
        self._views = views

    def routes(self) -> list[Route]:
        """Return the routes of pages and twins."""
        return self._views.routes(
            ("/snippets", self._list),
            ("/snippets/{identifier:path}", self._snippet),
            ("/skills/{reference:path}", self._skill),
            ("/api/snippets", self._list),
            ("/api/snippets/{identifier:path}", self._snippet),
            ("/api/skills/{reference:path}", self._skill),
        )

    def _list(self, request: Request) -> Response:
        require_all_tenants(request, CONTENT)
        tag = request.query_params.get("tag", "").strip()
        known, skills = self._repository.snippets(), self._repository.skills()
        found = [each for each in known if not tag or each.has_tag(tag)]
        warning = None
        if tag and not any(forms.snippet_state(each) == "active" for each in found):
            warning = unmatched(tag, known)
        tags = forms.tag_forms(known)
        if wants_json(request):
            return json_response(
                {
                    "snippets": [forms.snippet_form(each, text=False) for each in found],
                    "skills": [forms.skill_form(each, body=False) for each in skills],
                    "tags": tags,
                    "warning": None if warning is None else forms.warning_form(warning),
                }
            )
        return self._views.page(
            "snippets.html",
            snippets=[forms.snippet_form(each) for each in found],
            skills=[forms.skill_form(each, body=False) for each in skills],
            tags=tags,
            tag=tag,
            chosen=parse_tags(tag),
            warning=warning,
            say=prompt_words,
            total=len(known),
            twin=twin_of(request, "/api/snippets"),
        )

    def _snippet(self, request: Request) -> Response:
        require_all_tenants(request, CONTENT)
        found = self._repository.find(request.path_params["identifier"])
        if found is None:
            raise NotFoundError("There is no such snippet.")
        form = forms.snippet_form(found)
        if wants_json(request):
            return json_response({"snippet": form})
        metadata = form["metadata"]
        return self._views.page(
            "snippet.html",
            kind="snippet",
            name=found.name or found.identifier,
            reference=found.identifier,
            form=form,
            text=found.text,
            metadata=json.dumps(metadata, ensure_ascii=False, indent=2) if metadata else "",
            unread=bool(found.metadata.strip()) and not metadata,
            say=prompt_words,
            twin=f"/api/snippets/{found.identifier}",
        )

    def _skill(self, request: Request) -> Response:
        require_all_tenants(request, CONTENT)
        found = self._repository.find_skill(request.path_params["reference"])
        if found is None:
            raise NotFoundError("There is no such skill.")
        form = forms.skill_form(found)
        if wants_json(request):
            return json_response({"skill": form})
        return self._views.page(
            "snippet.html",
            kind="skill",
            name=found.name or found.reference,
            reference=found.reference,
            form=form,
            text=found.body,
            metadata="",
            unread=False,
            say=prompt_words,
            twin=f"/api/skills/{found.reference}",
        )
