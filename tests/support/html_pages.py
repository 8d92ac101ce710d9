"""HTML read strictly: every element closed where it should be, and nothing from elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"})


@dataclass
class Element:
    """An element, its attributes, and its text and elements in their order."""

    name: str
    attributes: dict[str, str | None]
    children: "list[Element | str]" = field(default_factory=list)

    def all(self, name: str) -> "Iterator[Element]":
        """The elements of a name below this one, in their order."""
        for element in self.elements():
            if element.name == name:
                yield element

    def elements(self) -> "Iterator[Element]":
        """Every element below this one."""
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child.elements()

    @property
    def text(self) -> str:
        """All text below this one."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def by_id(self, key: str) -> "Element":
        """The only element with this id."""
        (found,) = (each for each in self.elements() if each.attributes.get("id") == key)
        return found


class _StrictParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"an attribute twice in {tag}: {attrs}"
        element = Element(tag, attributes)
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def parse(page: str) -> Element:
    """The html element of a page that is well-formed."""
    assert page.startswith("<!doctype html>\n")
    parser = _StrictParser()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, f"not closed: {[each.name for each in parser.open[1:]]}"
    (html,) = (child for child in parser.open[0].children if isinstance(child, Element))
    return html


def references(page: Element) -> Iterator[str]:
    """Every address that a browser would follow or load."""
    for element in page.elements():
        for key, value in element.attributes.items():
            if key in {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}:
                yield value or ""
