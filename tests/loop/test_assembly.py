"""Putting a prompt together, once: order, precedence, what is left out and what is said of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_kit import Kit, asks, snippet

from clew import _guard
from clew.loop import Assembly, Augmentation, Tool, Trace
from clew.loop.assembly import assemble
from clew.prompts.configuration import Configuration
from clew.prompts.repository import MemoryRepository
from clew.prompts.segments import Prompt
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet
from clew.providers import Image, Message, Text
from clew.testing import Reply


def skill(identifier: str, body: str, **more: Any) -> Skill:
    return Skill(identifier=identifier, body=body, checksum=checksum(body), **more)


def put_together(
    question: Any = "Hi",
    *,
    prompt: str = "Own.",
    snippets: tuple[Snippet, ...] = (),
    repository: tuple[Skill, ...] = (),
    augmentation: Augmentation = Augmentation(),  # noqa: B008 - constant
    data_class: str | None = None,
    **more: Any,
) -> Assembly:
    configuration = Configuration(
        identifier="desk", provider="openai", model="small", prompt=prompt, **more
    )
    known = MemoryRepository(snippets, repository)
    return assemble(configuration, known, question, augmentation, data_class=data_class)


def said(assembly: Assembly) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in assembly.messages]


TONE = snippet("tone", "Kindly.", name="Tone", tags="style")
FACTS = snippet("facts", "Water is wet.", name="Facts")


def test_the_prompt_stands_first():
    """With the snippets that the tags choose; nothing else is there."""
    found = put_together(snippets=(TONE,), snippet_tags="style")
    assert said(found) == [("system", "Own.\n\nTone:\nKindly."), ("user", "Hi")]
    assert found.dropped == ()


def test_forced_snippets_are_system_messages_of_their_own():
    """In the order given, behind the prompt, which they never displace; blank ones are not there."""
    found = put_together(
        snippets=(TONE, FACTS, snippet("blank", "  \n")),
        augmentation=Augmentation(snippets=("facts", "blank", "tone")),
    )
    assert said(found) == [
        ("system", "Own."),
        ("system", "Water is wet."),
        ("system", "Kindly."),
        ("user", "Hi"),
    ]
    assert found.dropped == ()


@pytest.mark.parametrize("override", ["Mine.", "", None])
def test_the_runs_prompt_beats_the_configurations(override: str | None):
    """Snippets by tag stand behind it all the same; no text, no message."""
    found = put_together(augmentation=Augmentation(prompt=override, snippets=("facts",)))
    assert found.dropped == ("snippet#facts gone",)
    front = {"Mine.": [("system", "Mine.")], "": [], None: [("system", "Own.")]}[override]
    assert said(found) == [*front, ("user", "Hi")]
    tagged = put_together(
        snippets=(TONE,), snippet_tags="style", augmentation=Augmentation(prompt=override)
    )
    own = {"Mine.": "Mine.\n\n", "": "", None: "Own.\n\n"}[override]
    assert said(tagged)[0] == ("system", f"{own}Tone:\nKindly.")


def test_a_forced_snippet_that_is_selected_already_stands_once():
    """By its identifier, whatever its case; not because its text is part of another's."""
    part = snippet("part", "Kind")
    found = put_together(
        snippets=(TONE, part),
        snippet_tags="style",
        augmentation=Augmentation(snippets=("TONE", "part", "Part")),
    )
    assert said(found) == [
        ("system", "Own.\n\nTone:\nKindly."),
        ("system", "Kind"),
        ("user", "Hi"),
    ]


def test_forced_sources_that_are_gone_or_off_are_named():
    """`gone` for what is not there, `deactivated` for what is switched off or hidden."""
    found = put_together(
        snippets=(snippet("off", "x", active=False), snippet("away", "x", hidden=True)),
        repository=(skill("out", "x", enabled=False), skill("lost", "x", orphaned=True)),
        augmentation=Augmentation(
            snippets=("nobody", "off", "away"), skills=("none", "out", "lost")
        ),
    )
    assert found.dropped == (
        "snippet#nobody gone",
        "snippet#off deactivated",
        "snippet#away deactivated",
        "skill#none gone",
        "skill#out deactivated",
        "skill#lost gone",
    )
    assert said(found) == [("system", "Own."), ("user", "Hi")]


def test_a_callers_system_message_wins():
    """Over the configuration's prompt and its snippets, which is said; forced ones stay."""
    found = put_together(
        (Message.system("Theirs."), Message.user("Hi")),
        snippets=(TONE, FACTS),
        snippet_tags="style",
        augmentation=Augmentation(snippets=("facts", "tone")),
    )
    assert said(found) == [
        ("system", "Theirs."),
        ("system", "Water is wet."),
        ("system", "Kindly."),
        ("user", "Hi"),
    ]
    assert found.dropped == ("prompt#desk suppressed", "snippet#tone suppressed")
    assert found.parts.own_system
    override = put_together((Message.system("Theirs."),), augmentation=Augmentation(prompt="Mine."))
    assert override.dropped == ("prompt#override suppressed",)
    nothing = put_together((Message.system("Theirs."),), prompt="")
    assert nothing.dropped == ()


def test_skills_stand_in_front_of_the_users_first_text():
    """The configuration's, then the forced ones, each once; never in a system message."""
    found = put_together(
        (Message.user("Hi"), Message(role="assistant", content="Yes?"), Message.user("Help")),
        repository=(skill("a", "Body A."), skill("b", "Body B.")),
        skills=("a",),
        augmentation=Augmentation(skills=("b", "a")),
    )
    first = found.messages[1].text
    assert first.endswith("\n\nHi")
    assert first.index("Body A.") < first.index("Body B.")
    assert [first.count(body) for body in ("Body A.", "Body B.")] == [1, 1]
    assert [message.text for message in found.messages[2:]] == ["Yes?", "Help"]
    assert found.messages[0].text == "Own."
    block = first.removesuffix("\n\nHi")
    assert found.parts.skill_bytes == len(block.encode()) + 2


def test_in_a_message_of_parts_the_block_is_a_part():
    """The first one; the others stay as they are."""
    image = Image(data=b"png")
    found = put_together(
        Message.user((Text(text="Look"), image)),
        repository=(skill("a", "Body A."),),
        augmentation=Augmentation(skills=("a",)),
    )
    block, *rest = found.messages[1].content
    assert isinstance(block, Text)
    assert "Body A." in block.text
    assert rest == [Text(text="Look"), image]


def test_without_a_message_of_the_user_skills_are_left_out():
    """And that is said, in the trace and as a warning."""
    found = put_together(
        (Message(role="assistant", content="Hello."),),
        repository=(skill("a", "Body A."),),
        augmentation=Augmentation(skills=("a",)),
    )
    assert said(found) == [("system", "Own."), ("assistant", "Hello.")]
    assert found.dropped == ("skill#a no_user_message",)
    assert found.parts.skill_bytes == 0


def test_skills_that_may_not_be_used_are_named():
    """Too little trusted, another text than the one reviewed, too large."""
    found = put_together(
        repository=(
            skill("wild", "x", trust="community"),
            Skill(identifier="forged", body="x", checksum="0" * 64, trust="verified"),
            skill("long", "x" * 30_000, trust="verified"),
        ),
        minimum_trust="verified",
        augmentation=Augmentation(skills=("wild", "forged", "long")),
    )
    assert found.dropped == ("skill#wild trust", "skill#forged checksum", "skill#long budget")


def test_every_source_says_its_class_of_data():
    """The own prompt, snippets by tag and forced, skills; what is not used says nothing."""
    classed = {"data_class": "source_code"}
    found = put_together(
        snippets=(
            snippet("tone", "x", tags="style", **classed),
            snippet("facts", "x", data_class="editor_content"),
            snippet("free", "x"),
            snippet("off", "x", active=False, **classed),
        ),
        repository=(skill("a", "x", data_class="system_diagnostics"),),
        snippet_tags="style",
        data_class="internal_configuration",
        augmentation=Augmentation(snippets=("facts", "free", "off"), skills=("a",)),
    )
    assert found.sources == (
        ("prompt", "internal_configuration"),
        ("snippet:tone", "source_code"),
        ("snippet:facts", "editor_content"),
        ("skill:a", "system_diagnostics"),
    )
    suppressed = put_together((Message.system("x"),), data_class="internal_configuration")
    assert suppressed.sources == ()


@given(st.lists(st.sampled_from(["user", "assistant", "system"]), max_size=6), st.booleans())
def test_what_was_given_stands_in_the_result(roles: list[Any], forced: bool):
    """In its order, and unchanged but for the block of skills; nothing given is touched."""
    given_ = [Message(role=role, content=f"{n}") for n, role in enumerate(roles)]
    copy = list(given_)
    found = put_together(
        given_,
        snippets=(FACTS,),
        augmentation=Augmentation(snippets=("facts",) if forced else ()),
    )
    assert given_ == copy
    added = [each for each in found.messages if each not in copy]
    assert [each for each in found.messages if each in copy] == copy
    own = "system" not in roles
    assert [each.text for each in added] == ["Own."] * own + ["Water is wet."] * forced


# --- in a run ------------------------------------------------------------------------------------


async def test_it_happens_once(kit: Kit):
    """Later rounds send the same messages, the block of skills once in each."""
    read: list[str] = []

    class Counting(MemoryRepository):
        def snippets(self) -> Any:
            read.append("x")
            return super().snippets()

    repository = Counting([TONE], [skill("a", "Body A.")])
    look = Tool(name="look", function=lambda: "x", effect="read_only")
    loop = kit.loop(
        look,
        prompt="Own.",
        snippet_tags="style",
        skills=("a",),
        loop={"repository": repository},
    )
    turn = Reply(tool_calls=(asks("look"),))
    kit.script(turn, turn, Reply(text="x"))
    await kit.run(loop)
    assert len(read) == 1
    first = kit.bodies[0]["messages"]
    assert [body["messages"][: len(first)] for body in kit.bodies] == [first] * 3
    assert [str(body).count("Body A.") for body in kit.bodies] == [1, 1, 1]


async def test_what_was_left_out_is_a_step(kit: Kit):
    """Once, before round 1; there is none where nothing was."""
    kit.script(Reply(text="x"), Reply(text="x"))
    trace = Trace()
    result = await kit.run(kit.loop(), augmentation=Augmentation(snippets=("nobody",)), trace=trace)
    assert result.dropped == ("snippet#nobody gone",)
    assert [step.kind for step in trace.steps] == ["dropped", "context", "request", "llm"]
    assert trace.steps[0].dropped_sources == ("snippet#nobody gone",)
    quiet = Trace()
    await kit.run(kit.loop(), trace=quiet)
    assert [step.kind for step in quiet.steps] == ["context", "request", "llm"]


async def test_an_unknown_tag_is_told_once(kit: Kit, caplog: pytest.LogCaptureFixture):
    """It chooses nothing, and the nearest known one is named."""
    kit.script(Reply(text="x"))
    _guard.forget()
    loop = kit.loop(snippet_tags="stile", loop={"repository": MemoryRepository([TONE])})
    with caplog.at_level(logging.WARNING, "clew"):
        await kit.run(loop)
    assert "the nearest known tag is 'style'" in caplog.text
    assert kit.sent == [[("user", "Hello?")]]


async def test_the_rounds_know_the_blocks_of_the_prompt(kit: Kit):
    """The own prompt's blocks, the snippets by tag and the forced ones, without any content."""
    kit.script(Reply(text="x"), Reply(text="x"))
    own = Prompt.of(identity_context="You are SECRET.", status_text="All SECRET.")
    loop = kit.loop(
        prompt=own,
        snippet_tags="style",
        loop={"repository": MemoryRepository([TONE, FACTS])},
    )
    await kit.run(loop, augmentation=Augmentation(prompt=own))
    await kit.run(loop, augmentation=Augmentation(prompt=own, snippets=("facts",)))
    blocks = [span["clew.prompt.block.ids"] for span in kit.spans("chat")]
    front = ("identity_context", "status_text", "snippet:tone")
    assert blocks == [front, (*front, "snippet:facts")]
    assert b"SECRET" not in kit.exported.otlp_bytes()
