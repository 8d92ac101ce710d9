"""The `Accept` header, by the examples of RFC 9110 and by its properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.negotiation import choose

OFFERS = ("application/json", "application/x-npz", "application/zip")
JSON, NPZ, ZIP = OFFERS


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", JSON),
        ("  ", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/x-npz", NPZ),
        ("Application/X-NPZ", NPZ),
        ("application/zip, application/x-npz", NPZ),
        ("application/zip, application/x-npz;q=0.9", ZIP),
        ("application/json;q=0.5, application/x-npz;q=0.501", NPZ),
        ("text/html, application/x-npz;q=0.1, */*;q=0.05", NPZ),
        ("*/*;q=0.9, application/json;q=0", NPZ),
        ("application/json;q=0, application/*;q=0, */*;q=1", None),
        ("application/*;q=0.2, */*", JSON),
        ("application/json; charset=utf-8 ; q=0.3", JSON),
        ("application/json;q=0", None),
        ("application/json;q=0.000", None),
        ("text/html", None),
        ("text/*", None),
        ("json", None),
        ("application/json;q=2", None),
        ("application/json;q=nan", None),
        ("application/json;q=-1", None),
        ("application/json;q=", None),
        ("application/json;q=.", None),
        ("application/json;q=½", None),
        (",,;q=1,", None),
    ],
)
def test_the_best_offer_is_chosen(accept: str, expected: str | None) -> None:
    assert choose(accept, OFFERS) == expected


@given(st.text() | st.lists(st.sampled_from([*OFFERS, "*/*", ";q=", "0.5", "1", ","])).map("".join))
def test_any_header_names_an_offer_or_none(accept: str) -> None:
    assert choose(accept, OFFERS) in {*OFFERS, None}


@given(st.permutations([f"{offer};q={0.1 * n:.1f}" for n, offer in enumerate(OFFERS, 1)]))
def test_the_order_of_a_header_does_not_matter(items: list[str]) -> None:
    assert choose(", ".join(items), OFFERS) == OFFERS[-1]
