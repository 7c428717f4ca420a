"""The checker on histories made by hand: one that is fine, and one for each violation."""

from __future__ import annotations

from typing import Any

import pytest
from chaos.checker import judge
from tests.chaos.story import Story, violated


def test_a_history_as_it_should_be_is_not_faulted() -> None:
    story = Story().accept("j", "e").accept("k", "f")
    story.run(1, "p", 10).run(2, "q", 11, "f", "k").row(1, 10, "x").row(2, 11, "y")
    assert violated(story) == set()
    assert judge(story.events).counts["jobs"] == 2


def test_an_accepted_job_without_outcome_is_lost() -> None:
    assert violated(Story().accept("j", "e").accept("k", "f").run(1, "p", 10)) == {"lost"}


def test_an_accepted_job_that_is_still_queued_is_stuck_and_not_lost() -> None:
    story = Story().accept("j", "e").tell(9, "main", "left", job="j")
    assert violated(story) == {"stuck"}


def test_what_the_queue_took_and_never_noted_is_its_own_loss() -> None:
    story = Story().accept("j", "e").tell(9, "main", "never noted", job="j")
    assert violated(story) == set()
    assert judge(story.events).counts["lost by the queue"] == 1


def test_two_leases_that_are_trusted_at_one_instant_overlap() -> None:
    story = Story().lease(1, "p", "begin", 10).lease(1.5, "q", "begin", 11, effect="f")
    assert violated(story) == {"overlap"}


@pytest.mark.parametrize(
    "end",
    [
        {"kind": "end"},
        {"kind": "tick", "lost": "taken"},
    ],
)
def test_trust_ends_with_the_body_and_with_the_holder_s_own_insight(end: dict[str, Any]) -> None:
    story = Story().lease(1, "p", "begin", 10).lease(1.4, "p", fence=10, **end)
    story.lease(1.5, "q", "begin", 11, effect="f")
    assert violated(story) == set()


def test_a_frozen_holder_is_trusting_only_as_far_as_it_ever_noted() -> None:
    story = Story().lease(1, "p", "begin", 10).lease(2.1, "q", "begin", 11, effect="f")
    story.lease(4, "p", "end", 10, trusted=1.95, lost="expired")
    assert violated(story) == set()
    assert judge(story.events).counts["bodies beside each other"] == 1


def test_a_renewal_that_was_noted_extends_trust() -> None:
    story = Story().lease(1, "p", "begin", 10).lease(1.9, "p", "tick", 10, trusted=2.8)
    story.lease(2.5, "q", "begin", 11, effect="f")
    assert violated(story) == {"overlap"}


def test_the_overlap_with_a_long_lease_is_seen_past_a_short_one_between() -> None:
    story = Story().lease(1, "p", "begin", 10, trusted=9)
    story.lease(1.1, "q", "begin", 11, trusted=1.2, effect="f")
    story.lease(5, "r", "begin", 12, effect="g")
    assert len(judge(story.events).findings["overlap"]) == 2


def test_trust_counts_from_the_grant_and_not_from_the_body() -> None:
    story = Story().lease(1, "p", "begin", 10)
    story.grant(1.9, "q", 11, "k")
    story.lease(2.0, "q", "begin", 11, effect="f")
    assert violated(story) == {"overlap"}


def test_other_resources_do_not_overlap() -> None:
    story = Story().lease(1, "p", "begin", 10).lease(1, "q", "begin", 11, res="lock:b", effect="f")
    assert violated(story) == set()


def test_a_smaller_fence_that_was_asked_for_after_a_larger_one_was_granted_is_out_of_order() -> (
    None
):
    story = Story().run(1, "p", 11).run(2, "q", 10, "f", "k")
    assert violated(story) == {"fence order"}


def test_a_smaller_fence_that_is_only_noted_later_is_in_order() -> None:
    story = Story().lease(1, "q", "begin", 11, trusted=1.5, effect="f")
    story.lease(3, "p", "begin", 10, asked=0.9, trusted=0.99)  # Frozen since its grant.
    assert violated(story) == set()


def test_two_leases_with_one_fence_are_found() -> None:
    assert violated(Story().run(1, "p", 10).run(2, "q", 10, "f", "k")) == {"fence shared"}


def test_a_row_with_a_smaller_fence_after_a_larger_one_is_stale() -> None:
    assert violated(Story().row(2, 10, "a").row(1, 11, "b")) == {"stale accepted"}


def test_two_rows_for_one_effect_are_a_double() -> None:
    assert violated(Story().row(1, 10).row(2, 11)) == {"double in ledger"}


def test_two_confirmed_effects_in_the_plain_sink_are_a_double_and_ran_after_done() -> None:
    story = Story().accept("j", "e").run(1, "p", 10).run(2, "q", 11)
    assert violated(story) == {"double in plain sink", "ran after done"}


def test_a_crash_between_effect_and_record_excuses_one_double_and_no_more() -> None:
    story = Story().accept("j", "e").lease(1, "p", "begin", 10)
    story.lease(1.1, "p", "effect", 10, sink="plain").run(3, "q", 11)
    found = judge(story.events)
    assert violated(story) == set()
    assert found.counts["doubles in plain sink"] == 1
    assert found.counts["crashes between effect and record"] == 1
    assert "double in plain sink" in violated(story.run(5, "r", 12))


def test_a_loss_between_effect_and_record_excuses_a_double() -> None:
    story = Story().accept("j", "e").lease(1, "p", "begin", 10)
    story.lease(1.1, "p", "effect", 10, sink="plain").tell(1.2, "p", "put_back", job="j")
    assert violated(story.run(3, "q", 11)) == set()
    assert judge(story.events).counts["losses between effect and record"] == 1


def test_the_outcome_of_the_next_delivery_confirms_nothing_of_the_one_before() -> None:
    story = Story().accept("j", "e").lease(1, "p", "begin", 10)
    story.lease(1.1, "p", "effect", 10, sink="plain").deliver(1.5, "p", "k")
    story.end(1.6, "p", "k", "f")
    assert violated(story.run(3, "q", 11)) == set()


def test_a_body_under_a_later_fence_ran_after_done_even_without_effect() -> None:
    story = Story().accept("j", "e").run(1, "p", 10).lease(2, "q", "begin", 11)
    assert violated(story) == {"ran after done"}


def test_a_returned_job_without_effect_is_a_phantom() -> None:
    story = Story().accept("j", "e").end(1, "p", "j", "e")
    assert violated(story) == {"phantom outcome"}


def test_another_effect_s_result_is_a_wrong_replay() -> None:
    story = Story().accept("j", "e").run(1, "p", 10)
    story.end(2, "q", "j", "f")
    assert violated(story) == {"wrong replay"}


@pytest.mark.parametrize(
    ("kind", "check"),
    [("orphan", "orphan"), ("immortal", "immortal key"), ("line left", "line left")],
)
def test_what_the_audit_saw_is_found(kind: str, check: str) -> None:
    assert violated(Story().tell(9, "main", kind, key="lock:a")) == {check}


@pytest.mark.parametrize("kind", ["crash", "traceback"])
def test_a_traceback_is_an_unexpected_error(kind: str) -> None:
    assert violated(Story().tell(9, "p", kind, text="boom")) == {"unexpected error"}


@pytest.mark.parametrize(
    ("error", "found"), [("Refused", set()), ("KeyError", {"unexpected error"})]
)
def test_only_errors_that_bodies_mean_to_raise_are_expected(error: str, found: set[str]) -> None:
    story = Story().accept("j", "e")
    story.tell(1, "p", "outcome", job="j", how="raised", error=error, text="")
    assert violated(story) == found


def test_only_what_a_forgetful_server_explains_is_excused_in_the_loss_profile() -> None:
    story = Story().accept("j", "e").row(1, 10).row(2, 11)
    found = judge(story.events)
    assert set(found.failures("no-loss")) == {"lost", "double in ledger"}
    assert found.failures("loss") == ["double in ledger"]
