"""Which form of an answer a client prefers: the `Accept` header of RFC 9110, section 12.5.1."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from service.errors import NotAcceptableError

__all__ = ["choose", "choose_for"]

_Q_DIGITS = 5  # "0.123"


@dataclass(frozen=True)
class _Range:
    """One item of the header: a media type, or a whole group of them, and its weight."""

    name: str
    weight: float

    def precision(self, offer: str) -> int:
        """How closely it names an offer; zero if it does not."""
        if self.name == offer:
            return 3
        if self.name == offer.partition("/")[0] + "/*":
            return 2
        return int(self.name == "*/*")


def choose_for(request: Request, offers: Iterable[str]) -> str:
    """The offer that a request likes best; raises `NotAcceptableError` if it likes none."""
    accept, known = ",".join(request.headers.getlist("accept")), tuple(offers)
    chosen = choose(accept, known)
    if chosen is None:
        raise NotAcceptableError(
            f"the answer may be {', '.join(known)}, but the client accepts {accept[:80]}"
        )
    return chosen


def choose(accept: str, offers: Sequence[str]) -> str | None:
    """The offer that the header likes best, the first one among equals; None if it likes none.

    A missing or empty header takes anything. What cannot be read asks for nothing.
    """
    if not accept.strip():
        return offers[0]
    ranges = [found for item in accept.split(",") if (found := _parse(item))]
    best = max(offers, key=lambda offer: _weight(offer, ranges))
    return best if _weight(best, ranges) else None


def _weight(offer: str, ranges: Sequence[_Range]) -> float:
    """That of the item which names the offer most closely: `*/*;q=0` means all others."""
    closest = max(ranges, key=lambda item: item.precision(offer), default=None)
    return closest.weight if closest is not None and closest.precision(offer) else 0.0


def _parse(item: str) -> _Range | None:
    """An item of the header; other parameters than the weight select nothing here."""
    name, *parameters = (part.strip().lower() for part in item.split(";"))
    weights = [part[2:].strip() for part in parameters if part.startswith("q=")]
    weight = _parse_weight(weights[0]) if weights else 1.0
    return None if weight is None or "/" not in name else _Range(name, weight)


def _parse_weight(text: str) -> float | None:
    """A weight from 0 to 1 with up to three decimals; anything else is none."""
    if len(text) > _Q_DIGITS or not text.isascii() or not text.replace(".", "", 1).isdecimal():
        return None
    weight = float(text)
    return weight if weight <= 1 else None
