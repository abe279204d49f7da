"""The window fit: the budget, the estimate, what is dropped, and what is said of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_kit import Kit, asks, snippet

from clew import semconv
from clew.facts import Usage
from clew.loop import Augmentation, Tool, Trace, Window
from clew.loop.window import (
    SEED,
    Breakdown,
    Fitting,
    Parts,
    budget_of,
    raw_message,
    raw_tools,
    turns,
)
from clew.prompts.repository import MemoryRepository
from clew.prompts.skills import Skill, checksum
from clew.providers import (
    FallbackProvider,
    Image,
    Message,
    Text,
    Thinking,
    ToolRequest,
    ToolSpec,
    provider,
)
from clew.testing import Reply

NO_PARTS = Parts(system=None)


@pytest.mark.parametrize(
    ("length", "max_tokens", "default", "expected"),
    [
        (200_000, 1000, None, (200_000, 1000, 6000, 193_000)),
        (200_000, None, 4096, (200_000, 4096, 6000, 189_904)),
        (200_000, None, None, (200_000, 4000, 6000, 190_000)),
        (None, None, None, (8192, 1000, 246, 6946)),
        (10_001, None, None, (10_001, 1000, 301, 8700)),
        (100_001, None, None, (100_001, 2001, 3001, 94_999)),
        (100, 1000, None, (100, 1000, 3, -903)),
    ],
)
def test_the_budget(length: Any, max_tokens: Any, default: Any, expected: tuple[int, ...]):
    """Context length, less what is kept for the answer, less three percent, rounded up."""
    assert budget_of(length, max_tokens=max_tokens, default_output=default) == expected


CALL = ToolRequest(id="c", name="find", arguments={}, arguments_text="x" * 21)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (Message.user("x" * 35), 8 + 10),
        (Message.user("ö" * 35), 8 + 20),
        (Message.system("x" * 7), 8 + 2),
        (Message.result(CALL, "x" * 25), 8 + 10),
        (Message(role="assistant", tool_calls=(CALL, CALL)), 8 + 2 * (12 + 10)),
        (Message(role="assistant", thinking=(Thinking(text="x" * 7),)), 8 + 2),
        (
            Message(role="assistant", thinking=(Thinking(native={"signature": "x" * 5}),)),
            8 + 2,
        ),
        (Message.user((Text(text="x" * 7), Image(data=b""))), 8 + 2 + 1600),
        (Message.user("\ud800"), pytest.approx(8 + 3 / 3.5)),
    ],
)
def test_the_estimate_of_a_message(message: Message, tokens: Any):
    """Bytes by 3.5 for prose and by 2.5 for what is dense, 8 for a message, 12 for a call."""
    assert raw_message(message) == tokens


def test_the_estimate_of_tools():
    """Name, description and schema are dense."""
    tool = ToolSpec(name="f", description="d" * 9, parameters={"type": "object"})
    assert raw_tools([tool, tool]) == pytest.approx(2 * (12 + (1 + 9 + 17) / 2.5))


# --- turns ---------------------------------------------------------------------------------------


def transcript(shape: str) -> list[Message]:
    """Return messages: s(ystem), u(ser), a(ssistant), c(all of the assistant's), t(ool)."""
    made: list[Message] = []
    for place, kind in enumerate(shape):
        text = f"{place}"
        if kind == "c":
            call = ToolRequest(id=text, name="f", arguments={}, arguments_text="{}")
            made.append(Message(role="assistant", content=text, tool_calls=(call,)))
        elif kind == "t":
            made.append(Message(role="tool", content=text, tool_call_id=text))
        else:
            roles = {"s": "system", "u": "user", "a": "assistant"}
            made.append(Message(role=roles[kind], content=text))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("u", ["(u)"]),
        ("su", ["(su)"]),
        ("ssuctct", ["(ssu)", "ct", "(ct)"]),
        ("suctcttct", ["(su)", "ct", "ctt", "(ct)"]),
        ("suau", ["(su)", "a", "(u)"]),
        ("suauauctct", ["(su)", "a", "ua", "(u)", "ct", "(ct)"]),
        ("suctauctau", ["(su)", "cta", "ucta", "(u)"]),
        ("sacu", ["(s)", "ac", "(u)"]),
        ("a", ["(a)"]),
        ("", []),
    ],
)
def test_a_transcript_falls_into_turns(shape: str, expected: list[str]):
    """Those in brackets are never dropped: the head, the newest message, the newest exchange."""
    found = [
        ("{}" if turn.droppable else "({})").format("".join(shape[at] for at in turn.places))
        for turn in turns(transcript(shape))
    ]
    assert found == expected


@given(st.text(alphabet="suact", max_size=14))
def test_turns_cover_a_transcript(shape: str):
    """Every message once, in order; a result is never apart from what asked for it."""
    found = turns(transcript(shape))
    assert [at for turn in found for at in turn.places] == list(range(len(shape)))
    for turn in found:
        first = turn.places[0]
        lonely = shape[first] == "t" and first > 0 and shape[first - 1] in "ct"
        assert not lonely or shape[first - 1] == "u"


# --- the fit -------------------------------------------------------------------------------------


def fitting(length: int, **more: Any) -> Fitting:
    return Fitting(Window(), context_length=length, default_output=0, **more)


def fit(shape: str, length: int, size: int = 350, **more: Any) -> tuple[str, Breakdown, bool]:
    """Fit messages of `size` bytes each, 108 tokens with 350, calibrated by 1."""
    messages = [
        Message(role=each.role, content="x" * size, tool_calls=each.tool_calls)
        for each in transcript(shape)
    ]
    made = fitting(length, calibration=1.0, **more)
    found = made.fit(messages, (), NO_PARTS, max_tokens=None)
    places = [next(n for n, each in enumerate(messages) if each is one) for one in found.messages]
    return "".join(str(place) for place in places), found.breakdown, found.fits


def test_what_fits_is_sent_whole():
    """Nothing is dropped, and the numbers say how much is left."""
    kept, breakdown, fits = fit("suau", 1000)
    assert (kept, fits, breakdown.dropped_turns) == ("0123", True, 0)
    assert (breakdown.estimated_tokens, breakdown.budget) == (432, 970)
    assert breakdown.remaining == 970 - 432


def test_the_oldest_whole_turns_go_first():
    """One by one, and no more than must be; never head or newest. A message takes 108 tokens."""
    kept = [fit("suauaua", length)[0] for length in (780, 779, 672, 557, 556, 10)]
    assert kept == ["0123456", "013456", "013456", "0156", "0156", "0156"]


def test_the_exchanges_of_the_newest_turn_go_too():
    """A call with its results as a whole: no result is left without what asked for it."""
    found = {fit("suctctct", length, 250)[0] for length in range(100, 1400, 10)}
    assert found == {"01234567", "014567", "0167"}


def test_what_cannot_fit_is_not_called_fitting():
    """The floor is head and newest; what remains is then below zero."""
    kept, breakdown, fits = fit("suau", 100)
    assert (kept, fits) == ("013", False)
    assert breakdown.remaining < 0


@given(
    st.text(alphabet="uact", max_size=10),
    st.integers(min_value=0, max_value=3000),
    st.integers(min_value=0, max_value=60),
    st.floats(min_value=1, max_value=5),
)
def test_the_lines_sum_exactly(shape: str, length: int, skills: int, calibration: float):
    """Budget and estimate are the sums of their lines, and remaining is their difference."""
    messages = [Message.system("x" * 70), *transcript("u" + shape)]
    made = fitting(length, calibration=calibration)
    parts = Parts(system=0, skill_bytes=skills)
    found = made.fit(messages, [ToolSpec(name="f")], parts, max_tokens=7)
    lines = found.breakdown
    assert lines.budget == lines.context_length - lines.reserved_output - lines.safety_margin
    assert lines.estimated_tokens == (
        lines.transcript_tokens
        + lines.tool_schema_tokens
        + lines.system_prompt_tokens
        + lines.snippet_tokens
        + lines.skill_tokens
    )
    assert lines.remaining == lines.budget - lines.estimated_tokens
    assert found.fits is (lines.remaining >= 0)
    whole = sum(map(raw_message, found.messages)) + raw_tools([ToolSpec(name="f")])
    assert whole * calibration <= lines.estimated_tokens + 1e-6
    assert lines.estimated_tokens < whole * calibration + 5 + skills / 3.5 * calibration


def test_each_part_has_its_line():
    """System prompt, snippets in it and beside it, skills, tools, and the rest."""
    messages = [
        Message.system("x" * 140),
        Message.system("x" * 35),
        Message.user("x" * 70),
    ]
    parts = Parts(system=0, snippets=(1,), snippet_bytes=70, skill_bytes=35)
    made = fitting(1000, calibration=1.0)
    lines = made.fit(messages, [], parts, max_tokens=None).breakdown
    assert lines.system_prompt_tokens == 8 + 40 - 20
    assert lines.snippet_tokens == 20 + 8 + 10
    assert lines.skill_tokens == 10
    assert lines.transcript_tokens == 8 + 20 - 10
    assert lines.estimated_tokens == sum(math.ceil(raw_message(each)) for each in messages)


def test_the_calibration_only_grows():
    """It begins at 1.15; what a provider reports raises it, and never lowers it."""
    made = fitting(8000)
    assert (made.calibration, made.measured) == (SEED, False)
    made.fit([Message.user("x" * 322)], (), NO_PARTS, max_tokens=None)  # 100 tokens
    made.learn(None)
    assert (made.calibration, made.measured) == (SEED, False)
    made.learn(200)
    assert (made.calibration, made.measured) == (2.0, True)
    made.learn(50)
    assert made.calibration == 2.0


# --- in a run ------------------------------------------------------------------------------------


async def test_the_numbers_are_on_the_round(kit: Kit):
    """Each as an attribute, and the same as a step before the request."""
    kit.script(Reply(text="x"))
    trace = Trace()
    loop = kit.loop(prompt="P" * 70, loop={"window": Window(context_length=2000)})
    await kit.run(loop, trace=trace)
    (span,) = kit.spans("chat")
    assert {key: value for key, value in span.items() if key.startswith(semconv.CONTEXT)} == {
        "clew.context.measured": False,
        "clew.context.context_length": 2000,
        "clew.context.reserved_output": 1000,
        "clew.context.safety_margin": 60,
        "clew.context.budget": 940,
        "clew.context.transcript_tokens": math.ceil((8 + 6 / 3.5) * SEED),
        "clew.context.tool_schema_tokens": 0,
        "clew.context.system_prompt_tokens": math.ceil((8 + 20) * SEED),
        "clew.context.snippet_tokens": 0,
        "clew.context.skill_tokens": 0,
        "clew.context.system_prompt_in_transcript": False,
        "clew.context.estimated_tokens": 12 + 33,
        "clew.context.remaining": 940 - 45,
        "clew.context.calibration": SEED,
        "clew.context.dropped_turns": 0,
    }
    assert trace.steps[0].context_budget is not None
    assert trace.steps[0].context_budget["remaining"] == 895
    assert [step.kind for step in trace.steps] == ["context", "request", "llm"]


async def test_a_run_that_cannot_fit_ends_without_a_call(kit: Kit):
    """Not a failure: it was completed as far as it goes, and is truncated."""
    trace = Trace()
    loop = kit.loop(loop={"window": Window(context_length=1000)})
    result = await kit.run(loop, trace=trace)
    assert (result.status, result.reason, result.truncated) == (
        "completed",
        "context_truncated",
        True,
    )
    assert (kit.bodies, result.rounds, result.text) == ([], 0, "")
    assert [step.kind for step in trace.steps] == ["context"]
    assert kit.ended == {"status": "completed", "termination_reason": "context_truncated"}


async def test_a_long_run_sends_what_fits(kit: Kit):
    """The oldest exchange is left out of the request, and stays in the transcript."""
    big = Tool(name="big", function=lambda: "x" * 5000, effect="read_only")
    turn = Reply(tool_calls=(asks("big"),), usage=None)
    kit.script(turn, turn, turn, Reply(text="x"))
    window = Window(context_length=6000, reserved_output=0)
    result = await kit.run(kit.loop(big, prompt="P", loop={"window": window}))
    assert [len(body["messages"]) for body in kit.bodies] == [2, 4, 6, 6]
    assert len(result.messages) == 9
    dropped = [span["clew.context.dropped_turns"] for span in kit.spans("chat")]
    assert dropped == [0, 0, 0, 1]
    assert [each["role"] for each in kit.bodies[3]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


async def test_without_a_window_everything_is_sent(kit: Kit):
    """And nothing is reckoned or recorded."""
    kit.script(Reply(text="x"))
    trace = Trace()
    await kit.run(kit.loop(loop={"window": None}), "x" * 100_000, trace=trace)
    assert [step.kind for step in trace.steps] == ["request", "llm"]
    (span,) = kit.spans("chat")
    assert not [key for key in span if key.startswith(semconv.CONTEXT)]


async def test_the_context_length_is_the_models(kit: Kit):
    """From the price data; what nobody knows has 8192; of a chain the smallest counts."""
    lengths = []
    async with provider("anthropic", api_key="k", base_url=kit.server.base_url) as claude:
        for model, by in [
            ("gpt-4o", kit.provider),
            ("nobody-knows", kit.provider),
            ("claude-sonnet-4-5", claude),
            ("gpt-4o", FallbackProvider(kit.provider, claude)),
        ]:
            found = await kit.dry_run(kit.loop(by=by, model=model))
            assert found.breakdown is not None
            lengths.append((found.breakdown.context_length, found.breakdown.reserved_output))
    assert lengths == [(128_000, 2560), (8192, 1000), (200_000, 4096), (128_000, 4096)]


async def test_runs_do_not_teach_each_other(kit: Kit):
    """A calibration belongs to its run."""
    look = Tool(name="look", function=lambda: "x", effect="read_only")
    turn = Reply(tool_calls=(asks("look"),), usage=Usage(input_tokens=5000, output_tokens=1))
    kit.script(turn, Reply(text="x", usage=None), turn, Reply(text="x", usage=None))
    loop = kit.loop(look, loop={"window": Window(context_length=100_000)})
    for _ in range(2):
        await kit.run(loop)
    found = [span["clew.context.calibration"] for span in kit.spans("chat")]
    measured = [span["clew.context.measured"] for span in kit.spans("chat")]
    assert found[0] == found[2] == SEED
    assert found[1] == found[3] > 20
    assert measured == [False, True, False, True]


async def test_the_estimate_sees_the_whole_prompt(kit: Kit):
    """Snippets by tag, forced ones and skills have their lines; the budget is short of none."""
    repository = MemoryRepository(
        [snippet("tone", "T" * 350, tags="style"), snippet("facts", "F" * 350)],
        [Skill(identifier="a", body="B" * 350, checksum=checksum("B" * 350))],
    )
    loop = kit.loop(
        prompt="P" * 350, snippet_tags="style", skills=("a",), loop={"repository": repository}
    )
    found = await kit.dry_run(loop, augmentation=Augmentation(snippets=("facts",)))
    lines = found.breakdown
    assert lines is not None
    assert found.wire is not None
    assert lines.system_prompt_tokens == math.ceil((8 + 100) * SEED)
    assert lines.snippet_tokens > math.ceil((100 + 8 + 100) * SEED)
    assert lines.skill_tokens > math.ceil(100 * SEED)
    whole = sum(map(raw_message, found.messages))
    assert whole * SEED <= lines.estimated_tokens < whole * SEED + 5
    assert lines.system_prompt_in_transcript is False
    theirs = await kit.dry_run(loop, (Message.system("x" * 350), Message.user("Hi")))
    assert theirs.breakdown is not None
    assert theirs.breakdown.system_prompt_in_transcript is True
    assert theirs.breakdown.system_prompt_tokens == 0


def test_the_names_of_the_lines():
    """As JSON has them."""
    made = fitting(1000)
    lines = made.fit([Message.user("x")], (), NO_PARTS, max_tokens=None).breakdown
    assert set(lines.as_dict()) == {
        "measured",
        "contextLength",
        "reservedOutput",
        "safetyMargin",
        "budget",
        "transcriptTokens",
        "toolSchemaTokens",
        "systemPromptTokens",
        "snippetTokens",
        "skillTokens",
        "systemPromptInTranscript",
        "estimatedTokens",
        "remaining",
        "calibration",
        "droppedTurns",
    }
    assert set(lines.attributes()) == {semconv.CONTEXT + name for name in semconv.CONTEXT_LINES}
