"""What comes of the crashes of a model server."""

from __future__ import annotations

from iop.errors import AdapterError, PolicyDenied
from iop.node.server_crashes import REST_MOST_S, STEADY_S, Crashes, crash_sentence, told_again


def test_the_rests_double_up_to_the_longest_until_it_is_given_up():
    crashes = Crashes(8)
    assert [crashes.add(0) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, REST_MOST_S, REST_MOST_S, None]


def test_one_that_was_steady_begins_anew_as_does_one_that_is_forgiven():
    crashes = Crashes(1)
    assert [crashes.add(0), crashes.add(STEADY_S), crashes.add(STEADY_S - 1)] == [0.5, 0.5, None]
    crashes.forget()
    assert crashes.add(0) == 0.5


def test_one_that_may_not_crash_at_all_is_given_up_at_once():
    assert Crashes(0).add(STEADY_S) is None


def test_the_sentence_has_its_last_words_or_says_that_there_are_none():
    assert crash_sentence("tiny", "it ended with exit code 1", "out of memory") == (
        "The server tiny: it ended with exit code 1. Its last words: out of memory")
    assert crash_sentence("tiny", "it ended with exit code 1", "").endswith(" It said nothing.")


def test_each_who_is_told_has_an_error_of_his_own_and_another_node_may_be_able_to():
    first = AdapterError("It is gone.")
    told = told_again(first)
    assert told is not first and told.message == first.message and told.retryable
    assert not told_again(PolicyDenied("It may not.")).retryable
