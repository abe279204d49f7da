"""Run ids, trace ids and span ids."""

from __future__ import annotations

import os
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import RunIdError
from clew.ids import RunIdGenerator, fresh_run_id, parse_run_id


@given(st.uuids())
def test_every_form_of_a_uuid_is_the_same_run(run_id: uuid.UUID) -> None:
    """An object, dashed, upper-case, bare, braced and urn text are one id."""
    forms = [run_id, str(run_id), str(run_id).upper(), run_id.hex, f"{{{run_id}}}", run_id.urn]
    if run_id.int:
        assert [parse_run_id(form) for form in forms] == [run_id] * 6


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_mints_a_fresh_id(value: str | None) -> None:
    """None and empty text give a random uuid of version 4, another one each time."""
    first, second = parse_run_id(value), parse_run_id(value)
    assert first != second
    assert first.version == second.version == 4


@pytest.mark.parametrize(
    "value",
    ["0" * 32, uuid.UUID(int=0), "order-42", "123", " ", 42, b"bytes", "z" * 500],
)
def test_a_malformed_id_is_a_clear_error(value: object) -> None:
    """Nil and malformed ids are refused with a message that says what to give."""
    with pytest.raises(RunIdError, match="run_id") as caught:
        parse_run_id(value)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 250


def test_span_ids_do_not_follow_the_random_seed_of_the_application() -> None:
    """Seeding `random` twice alike does not make span ids repeat."""
    generator = RunIdGenerator()
    random.seed(7)
    first = generator.generate_span_id()
    random.seed(7)
    assert generator.generate_span_id() != first


def test_a_chosen_trace_id_is_used_once_set_and_not_after() -> None:
    """The next trace id can be chosen, and is random again afterwards."""
    generator = RunIdGenerator()
    chosen = uuid.uuid4().int
    token = generator.with_trace_id(chosen)
    assert generator.generate_trace_id() == chosen
    generator.reset(token)
    assert generator.generate_trace_id() != chosen


@pytest.mark.parametrize(
    ("run_id", "is_random"),
    [
        (uuid.UUID("0190163d-8694-739b-aea5-966c26f8ad91"), True),
        (uuid.uuid4(), True),
        (uuid.uuid1(), False),
        (uuid.uuid5(uuid.NAMESPACE_DNS, "clew"), False),
    ],
)
def test_the_random_flag_says_whether_the_low_bits_are_random(
    run_id: uuid.UUID, is_random: bool
) -> None:
    """The W3C random flag is for version 4 and 7 only."""
    token = RunIdGenerator.with_trace_id(run_id.int)
    try:
        assert RunIdGenerator().is_trace_id_random() is is_random
    finally:
        RunIdGenerator.reset(token)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_draws_other_ids() -> None:
    """Parent and child do not share the sequence of their ids."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, fresh_run_id().bytes)
        os._exit(0)
    ours = fresh_run_id().bytes
    os.waitpid(pid, 0)
    assert os.read(reader, 16) != ours
