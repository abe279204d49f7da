"""A loop with a tool that needs an approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loop_kit import Kit, asks

from clew.actors import Actor
from clew.facts import Usage
from clew.gates.approval import ApprovalGate, approve, deny
from clew.gates.approval_store import MemoryApprovals
from clew.gates.tool import ToolGate, ToolRule
from clew.loop import LoopResult, RunOptions, SqliteFence, Tool
from clew.testing import Reply

USAGE = Usage(input_tokens=100, output_tokens=10)
DONE = Reply(text="Done.", usage=USAGE)
TURN = Reply(
    text="I pay.",
    tool_calls=(asks("look"), asks("pay", {"euros": 64}, call_id="c2")),
    usage=USAGE,
)
BOB = Actor(id="bob", grants=frozenset({"agent_approve"}))


class Desk:
    """A loop with a tool that needs an approval."""

    def __init__(self, kit: Kit, tmp_path: Path, **more: Any) -> None:
        self.kit = kit
        self.done: list[Any] = []
        self.rules = {"look": ToolRule(), "pay": ToolRule()}
        self.store = MemoryApprovals()
        self.fence = SqliteFence(tmp_path / "writes.db")
        self.loop = kit.loop(
            Tool(name="look", function=lambda: self.did("look"), effect="read_only"),
            Tool(name="pay", function=lambda euros: self.did(f"paid {euros}")),
            loop={
                "fence": self.fence,
                "gates": (ApprovalGate({"pay"}, store=self.store), ToolGate(self.rules)),
                **more.pop("loop", {}),
            },
            **more,
        )

    def did(self, what: str) -> str:
        """Note what a tool did."""
        self.done.append(what)
        return what

    async def begin(self, **more: Any) -> LoopResult:
        """Run until the loop waits."""
        self.kit.script(TURN)
        result = await self.kit.run(self.loop, options=RunOptions(actor="ann"), **more)
        assert result.waiting is not None
        return result

    def approve(self) -> None:
        """Approve the one call that is pending."""
        (pending,) = self.store.pending()
        approve(self.store, pending.id, BOB, digest=pending.digest)

    def deny(self) -> None:
        """Deny the one call that is pending."""
        (pending,) = self.store.pending()
        deny(self.store, pending.id, BOB, digest=pending.digest)

    async def resume(self, result: LoopResult, **more: Any) -> LoopResult:
        """Go on from there."""
        assert result.waiting is not None
        return await self.kit.resume(self.loop, result.waiting.state, actor="ann", **more)
