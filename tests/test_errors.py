"""Errors: what they say, and that they survive the way to another process."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import pickle

import pytest

from clew.errors import (
    ApprovalRefused,
    ApprovalRequired,
    AuditError,
    ClewError,
    ConfigurationError,
    MissingExtraError,
    PolicyDenied,
    RunIdError,
    RunReferenceError,
    StoreError,
)

ERRORS = [
    ClewError("x"),
    ConfigurationError("x"),
    RunIdError("x"),
    RunReferenceError("x"),
    MissingExtraError("the part", "serve"),
    StoreError("x"),
    AuditError("the tool call"),
    PolicyDenied("budget", "run_tokens", "0123456789abcdef"),
    ApprovalRequired("approval", "needed", "d", approval_id="a", reference="r"),
    ApprovalRefused("a", "four_eyes"),
]


def facts(error: ClewError) -> tuple[object, ...]:
    """Return what an error consists of."""
    return type(error), str(error), error.args, vars(error)


def test_every_error_is_in_the_list() -> None:
    """A new one is looked at here as well."""
    here = {each for each in ClewError.__subclasses__() if each.__module__ == "clew.errors"}
    assert {type(each) for each in ERRORS} == {ClewError, *here}


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_errors_can_be_pickled_and_copied(error: ClewError) -> None:
    """A pool of processes, or a task queue, hands them on as they are."""
    assert facts(pickle.loads(pickle.dumps(error))) == facts(error)  # noqa: S301 - our own
    assert facts(copy.copy(error)) == facts(error)


def waits() -> None:
    raise ApprovalRequired("approval", "needed", approval_id="a", reference="r")


def test_a_pool_of_processes_hands_on_what_resumes_the_run() -> None:
    """The caller gets the reference, not a broken pool."""
    spawn = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool,
        pytest.raises(ApprovalRequired) as caught,
    ):
        pool.submit(waits).result(timeout=60)
    assert (caught.value.approval_id, caught.value.reference) == ("a", "r")


@pytest.mark.parametrize("reason", ["unknown", "not_pending", "not_permitted", "four_eyes",
                                    "digest_mismatch", "cannot_execute"])  # fmt: skip
def test_a_refused_approval_says_why_in_words(reason: str) -> None:
    """The code stays; beside it stands what it means."""
    error = ApprovalRefused("a", reason)
    assert error.reason == reason
    assert str(error).startswith(f"the approval a cannot be decided so: {reason} (")
