"""timbrelay.benchmark.conversation: agents say the same for the same seed, and know when a clause is complete."""

from __future__ import annotations

import random

from relay.speaking.sentences import SentenceCutter
from timbrelay.benchmark.conversation import (
    BARGE_IN_SHARE,
    REPLIES,
    TOKEN_S,
    cut_replies,
    find_completing,
    plan_turn,
    split_tokens,
)


def test_the_same_seed_gives_the_same_conversation() -> None:
    """Two runs can be compared; two agents do not speak in chorus."""
    first, again, other = (random.Random(seed) for seed in ("0/1", "0/1", "0/2"))
    turns = [plan_turn(first) for _ in range(20)]
    assert turns == [plan_turn(again) for _ in range(20)]
    assert turns != [plan_turn(other) for _ in range(20)]


def test_tokens_are_small_and_together_the_text() -> None:
    """Nothing is lost between them."""
    for reply in REPLIES:
        tokens = split_tokens(reply)
        assert "".join(tokens) == reply
        assert all(len(token.strip()) <= 6 for token in tokens)


def test_a_clause_is_complete_with_the_token_that_the_relay_cuts_at() -> None:
    """Neither a token earlier nor later, and for each sentence."""
    for reply in REPLIES:
        tokens = split_tokens(reply)
        completing = find_completing(tokens)
        for number, token in enumerate(completing):
            before, with_it = SentenceCutter(), SentenceCutter()
            assert len(before.push("".join(tokens[:token]))) <= number
            if token < len(tokens):
                assert len(with_it.push("".join(tokens[: token + 1]))) > number
        whole = SentenceCutter()
        assert len(completing) == len(whole.push(reply)) + len(whole.end())


def test_agents_speak_at_a_models_pace_and_are_sometimes_interrupted() -> None:
    """Forty tokens a second, and every fifth turn is not heard to its end."""
    chance = random.Random(1)
    turns = [plan_turn(chance) for _ in range(1000)]
    pauses = [pause for turn in turns for pause in turn.pauses_s]
    assert abs(sum(pauses) / len(pauses) - TOKEN_S) < 0.1 * TOKEN_S
    share = sum(turn.barge_in_s is not None for turn in turns) / len(turns)
    assert abs(share - BARGE_IN_SHARE) < 0.04
    assert all(len(turn.tokens) == len(turn.pauses_s) for turn in turns)


def test_the_replies_have_their_sentences() -> None:
    """The baseline speaks what the relay would hand out."""
    pieces = cut_replies()
    assert len(pieces) > len(REPLIES)
    assert all(len(piece.split()) < 10 for piece in pieces)
