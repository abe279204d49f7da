"""Detectors that others maintain: found by name, asked on top, and never trusted to fail open."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew import detectors, redaction
from clew.errors import ConfigurationError, MissingExtraError
from clew.redaction import FAILED, MASK, Redactor
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider
from clew.testing.session import captured

SECRETS = {
    "slack hook": "https://hooks.slack.com/services/T01234567/B01234567/" + "aB3" * 8,
    "twilio": "SK" + "0123456789abcdef" * 2,
    "mailchimp": "0123456789abcdef" * 2 + "-us12",
    "square": "sq0csp-" + "aB3_" * 10 + "aB3",
    "artifactory": "AKCp8" + "aB3d" * 16,
    "discord": "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
}
"""In the shapes of real ones; each is a secret of nobody."""


@pytest.fixture
def asked() -> Iterator[None]:
    redaction.ask_also(("detect_secrets",))
    yield
    redaction.ask_also(())


@pytest.mark.parametrize("kind", SECRETS)
def test_shapes_that_a_maintained_detector_knows(asked: None, kind: str) -> None:
    """Each is masked wherever it stands, in values, in keys, and as often as it stands there."""
    secret = SECRETS[kind]
    redactor = Redactor()
    assert redactor.text(f"take {secret} and {secret}.") == f"take {MASK} and {MASK}."
    assert redactor.redact({"a": [secret], secret: 1}) == {"a": [MASK], MASK: 1}


@pytest.mark.parametrize("kind", SECRETS)
def test_they_are_not_asked_unless_somebody_wants_it(kind: str) -> None:
    """Clew's own rules do not know these shapes: the detector is what masks them."""
    assert Redactor().text(SECRETS[kind]) == SECRETS[kind]


@given(st.text())
def test_text_without_a_secret_stays(text: str) -> None:
    """Whatever the text is, the detector gives an answer; letters and spaces hold no secret."""
    find = detectors.finder("detect_secrets")
    assert all(found in text for found in find(text))
    prose = "".join(each for each in text if each.isalpha() or each == " ")[:20]
    assert list(find(prose)) == []


@pytest.mark.parametrize(
    "text", ["a" * 40_000, "eyJ" * 13_000, "://a:b" * 6_600, "softlayer_" * 4_000, "/" * 40_000]
)
def test_no_text_takes_long(text: str) -> None:
    """The longest text that is looked at takes less than half a second of CPU."""
    find = detectors.finder("detect_secrets")
    started = time.process_time()
    list(find(text))
    assert time.process_time() - started < 0.5


def test_secrets_are_not_tried_out(asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for a secret asks no server whether it is one."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", refused)
    for secret in SECRETS.values():
        assert Redactor().text(secret) == MASK


def test_a_name_that_nobody_knows() -> None:
    """It is refused, with those that there are."""
    with pytest.raises(ConfigurationError, match=r"'nobody' of secrets; there are: detect_secrets"):
        detectors.finder("nobody")


def test_a_detector_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for it is told at once what to install: nothing runs without it."""
    monkeypatch.setitem(__import__("sys").modules, "detect_secrets", None)
    detectors.finder.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'clew\[secrets\]'"):
        clew.configure("x", settings=Settings(redaction_detectors=("detect_secrets",)))
    detectors.finder.cache_clear()


# --- as a setting --------------------------------------------------------------------------------


def test_the_variable() -> None:
    """Names, separated by commas, in the order in which they are asked."""
    read = Settings.from_environment({"CLEW_REDACTION": "detect_secrets, Other"})
    assert read.redaction_detectors == ("detect_secrets", "other")


def said(**settings: Any) -> str:
    """Return what a round's span says of a conversation with secrets in it."""
    prompt = f"use {SECRETS['twilio']} for Ada"
    with (
        ScriptedProvider([Reply(text=f"I used {SECRETS['square']}")]) as provider,
        captured(content_to={"spans"}, **settings) as exported,
    ):
        client = openai.OpenAI(base_url=provider.openai_base_url, api_key="none")
        with clew.run("triage"):
            client.chat.completions.create(
                model="gpt-5-mini", messages=[{"role": "user", "content": prompt}]
            )
        client.close()
        (round_span,) = [span for span in exported.spans if span.name.startswith("chat ")]
    attributes = round_span.attributes or {}
    return json.dumps([attributes["gen_ai.input.messages"], attributes["gen_ai.output.messages"]])


def test_a_setting_masks_what_leaves() -> None:
    """At `redacted` what the detectors find is masked, a function of one's own is asked too."""
    both = ("detect_secrets", lambda text: text.replace("Ada", MASK))
    with_them = said(capture="redacted", redaction_detectors=both)
    assert f"use {MASK} for {MASK}" in with_them
    assert f"I used {MASK}" in with_them
    without = said(capture="redacted")
    assert SECRETS["twilio"] in without
    assert "for Ada" in without


def test_a_detector_that_fails_masks_everything() -> None:
    """Fail closed: what a detector could not look at does not leave."""

    def failing(_: str) -> str:
        raise RuntimeError("a fault of the detector")

    exported = said(capture="redacted", redaction_detectors=(failing,))
    assert "use" not in exported
    assert "Ada" not in exported
    assert FAILED in exported


def test_full_is_not_masked() -> None:
    """At `full` nobody is asked."""
    assert SECRETS["twilio"] in said(capture="full", redaction_detectors=("detect_secrets",))
