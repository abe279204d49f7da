"""The inspector's comparison of two calls, with their content and without."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import sample_calls as calls
from shop import Shop

from clew.store.prompt_records import SystemPrompt


def test_two_calls_are_compared_by_block(shop: Shop) -> None:
    """An insertion is one addition; text is compared by line, long equal stretches are folded."""
    longer = (*calls.KNOWLEDGE[:4], calls.KNOWLEDGE[4] + "A third order came.\n")
    extra = ("extra", "working", "volatile", "store", "\nSomething new.\n")
    after = (*calls.PROMPT[:2], extra, calls.SKILLS, longer, *calls.PROMPT[4:-1])
    one = calls.call()
    two = calls.call(
        after, model="gpt-5", tools=calls.TOOLS[1:], parameters={"temperature": 0.9},
        messages=[*calls.HISTORY, {"role": "user", "parts": [{"type": "text", "content": "And?"}]}],
    )  # fmt: skip
    shop.save(one, two)
    path = f"/prompts/{one[0].request_id}/diff/{two[0].request_id}"
    shown = shop.page(path)
    for expected in (
        "1 changed 1 added 1 removed 6 same", "model gpt-5-mini gpt-5",
        "parameter temperature 0.2 0.9", "changed knowledge_synthesis 1419 → 1439 bytes",
        "22 equal lines", "new: A third order came.", "added extra 16 bytes",
        "removed tomorrow 32 bytes", "search_orders removed", "3 equal messages at the beginning",
        "nothing further", "4 user",
    ):  # fmt: skip
        assert expected in shown
    twin = shop.http.get(f"/api{path}").json()
    assert [("extra", "added"), ("knowledge_synthesis", "changed"), ("tomorrow", "removed")] == [
        (each["id"], each["what"]) for each in twin["system"]["changes"]
    ]
    assert {"same": 3, "before": 3, "after": 4} == twin["messages"]
    assert False is twin["identical"]
    assert "customer has ordered" not in str(twin)
    same = shop.page(f"/prompts/{one[0].request_id}/diff/{one[0].request_id}")
    assert "identical" in same


def test_reordered_blocks_are_told_from_changed_ones(shop: Shop) -> None:
    """A block that moved is reordered, once."""
    after = (calls.CONTRACT, calls.IDENTITY, *calls.PROMPT[2:])
    one, two = calls.call(), calls.call(after)
    shop.save(one, two)
    shown = shop.page(f"/prompts/{one[0].request_id}/diff/{two[0].request_id}")
    assert "1 reordered 7 same" in shown


def test_prompts_without_maps_are_compared_whole(shop: Shop) -> None:
    """Two different unmapped prompts are no identical ones."""
    made = [
        calls.call(system=SystemPrompt(text=text, bytes=7, chars=7, digest=calls.digest(text)))
        for text in ("One way", "Another", "One way")
    ]
    shop.save(*made)
    one, two, three = (each[0].request_id for each in made)
    shown = shop.page(f"/prompts/{one}/diff/{two}")
    assert "System prompts differ; at least one has no map." in shown
    assert "gone: One way" in shown
    assert "new: Another" in shown
    assert "identical" in shop.page(f"/prompts/{one}/diff/{three}")


def test_without_content_digests_tell_what_changed(shop: Shop) -> None:
    """At level metadata the same blocks are found changed, without a word of them."""
    after = (*calls.PROMPT[:-2], (*calls.STATUS[:4], "\n## Status\n\nIt is 11:00.\n"), calls.FUTURE)
    one, _ = calls.call(level="metadata")
    two, _ = calls.call(after, level="metadata")
    other_key, _ = calls.call(after, level="metadata", digest_key="ff" * 8)
    shop.save((one, None), (two, None), (other_key, None))
    shown = shop.page(f"/prompts/{one.request_id}/diff/{two.request_id}")
    assert "1 changed 7 same" in shown
    assert "The text was kept out at the capture level." in shown
    shown = shop.page(f"/prompts/{one.request_id}/diff/{other_key.request_id}")
    assert "8 unknown" in shown
