"""What happens around each execution of a tool: the loop's hook, and the write fence."""

from __future__ import annotations

from collections.abc import Callable

from clew._guard import guard
from clew.decisions import decide
from clew.errors import StoreError
from clew.loop.calls import Done, Execution, Hooks
from clew.loop.fence import FenceRefusedError, Write
from clew.loop.plan import Plan


class Writes:
    """The writes of one run, behind the fence; holds the lease of the run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._leased: tuple[str, str] | None = None
        """The lease, and the run that it is of."""

    def hooks(self, done: Callable[[Done], None]) -> Hooks:
        """Return what is called around each execution.

        Args:
            done: told of each call that was tried.
        """
        plan = self._plan
        blocking = plan.fence is not None or plan.before_tool is not None
        return Hooks(before=self._before, after=self._after, done=done, blocking=blocking)

    def _before(self, execution: Execution) -> None:
        if self._plan.before_tool is not None:
            self._plan.before_tool(execution)
        if self._plan.tools[execution.tool].writes:
            try:
                self._put_down(execution)
            except (FenceRefusedError, StoreError) as error:
                reason = error.reason if isinstance(error, FenceRefusedError) else "store_error"
                decide("write_fence", "deny", reason=reason, subject=execution.tool)
                raise

    def _put_down(self, execution: Execution) -> None:
        fence = self._plan.fence
        if fence is None:
            raise FenceRefusedError("no_fence")
        if self._leased is None:
            self._leased = fence.enter(execution.run_id), execution.run_id
        fence.before(self._leased[0], _write(execution))

    def _after(self, execution: Execution) -> None:
        fence, leased = self._plan.fence, self._leased
        if fence is not None and leased is not None and self._plan.tools[execution.tool].writes:
            fence.after(leased[0], _write(execution))

    def give_back(self) -> None:
        """Give the lease back; the run has ended, or waits."""
        fence, leased = self._plan.fence, self._leased
        if fence is not None and leased is not None:
            with guard("give the lease of a run back"):
                fence.leave(*leased)
            self._leased = None


def _write(execution: Execution) -> Write:
    return Write(
        run_id=execution.run_id,
        round=execution.round,
        place=execution.place,
        tool=execution.tool,
        effect=execution.effect,
    )
