"""Entity tags: whether a client has the file already (RFC 9110, section 13.1.2)."""

__all__ = ["names"]


def names(if_none_match: str, tag: str) -> bool:
    """Whether the header `If-None-Match` names the tag; weak ones are compared, too."""
    items = [item.strip().removeprefix("W/") for item in if_none_match.split(",")]
    return tag in items or items == ["*"]
