"""When a version that front ends have loaded may be published."""

from typing import Any

from service.front_ends.agreement import Agreement

OLD, NEW = "tiny/1 abc", "tiny/2 def"
REJECTED = "tiny/2 "


class Told:
    """What each front end was told."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, str]] = []

    def __call__(self, number: int, **message: Any) -> None:
        self.messages.append((number, message["do"]))

    def verdicts(self) -> list[tuple[int, str]]:
        return [item for item in self.messages if item[1] != "look"]


def two() -> tuple[Agreement, Told]:
    told = Told()
    agreement = Agreement(told)
    for number in range(2):
        agreement.join(number, [OLD])
    return agreement, told


def test_a_version_is_published_when_the_last_has_loaded_it() -> None:
    agreement, told = two()
    agreement.loaded(0, NEW)
    assert told.verdicts() == []
    agreement.loaded(1, NEW)
    assert told.verdicts() == [(0, "publish"), (1, "publish")]


def test_whoever_has_not_loaded_it_is_asked_to_look() -> None:
    agreement, told = two()
    agreement.loaded(1, NEW)
    assert told.messages == [(0, "look")]


def test_one_that_cannot_load_it_has_the_others_abandon_it() -> None:
    agreement, told = two()
    agreement.loaded(0, NEW)
    agreement.tell(1, [OLD], [REJECTED])
    assert told.verdicts() == [(0, "abandon")]


def test_one_that_could_not_load_it_before_has_the_next_abandon_it_at_once() -> None:
    agreement, told = two()
    agreement.tell(1, [OLD], [REJECTED])
    agreement.loaded(0, NEW)
    assert told.verdicts() == [(0, "abandon")]


def test_a_second_try_that_succeeds_is_published() -> None:
    agreement, told = two()
    agreement.tell(1, [OLD], [REJECTED])
    agreement.loaded(1, NEW)
    agreement.loaded(0, NEW)
    assert sorted(told.verdicts()) == [(0, "publish"), (1, "publish")]


def test_nobody_waits_for_one_that_has_ended() -> None:
    agreement, told = two()
    agreement.loaded(0, NEW)
    agreement.leave(1)
    assert told.verdicts() == [(0, "publish")]


def test_one_that_has_started_with_it_agrees() -> None:
    agreement, told = two()
    agreement.leave(1)
    agreement.join(1, [OLD])
    agreement.loaded(0, NEW)
    agreement.leave(1)
    assert told.verdicts() == [(0, "publish")]
    agreement.join(1, [OLD, NEW])
    assert told.verdicts() == [(0, "publish")]


def test_other_content_under_the_same_number_is_another_version() -> None:
    agreement, told = two()
    agreement.loaded(0, NEW)
    agreement.loaded(1, "tiny/2 other")
    assert told.verdicts() == []
