"""The sections on how a model came about: what was learned, what it took, how to repeat it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from service.engine import Engine, Manifest
from trainer.page.charts import error_chart, occupancy_chart, share_bar
from trainer.page.elements import barred, duration, facts, gigabytes, section, share, table
from trainer.page.glyphs import glyph
from trainer.page.leaf_use import LeafUse
from trainer.page.markup import Child, Markup, shortened_name, tag
from trainer.repeat import RepeatCommand
from trainer.stages import StageRecord

__all__ = ["model_sections"]

_MOST_ATOMS = 24
_LONGEST_VALUE = 400
# What other sections show.
_SHOWN_ELSEWHERE = frozenset({"settings", "card", "stages", "relative_errors"})


def model_sections(
    engine: Engine, manifest: Manifest, use: LeafUse | None, command: RepeatCommand
) -> Iterator[Markup]:
    """What was learned, what training took, and how to repeat it."""
    yield _learned(engine, manifest.provenance, use)
    stages: Any = manifest.provenance.get("stages")
    if stages:
        yield _stages({key: StageRecord.from_json(each) for key, each in stages.items()})
    yield _repeat(command)
    yield _provenance(manifest)


def _learned(engine: Engine, provenance: Mapping[str, Any], use: LeafUse | None) -> Markup:
    errors: Sequence[float] = provenance.get("relative_errors", ())
    parts: list[Child] = []
    if errors:
        words = "The part of descriptors that codes miss, after each round of dictionary learning."
        parts.append(tag("div", tag("h3", "Coding error"), error_chart(errors), tag("p", words)))
    if use is not None:
        chart = occupancy_chart(use.leaves)
        parts.append(tag("div", tag("h3", "Leaves"), chart, tag("p", _occupancy(use))))
    columns = tag("div", *parts, class_="columns") if parts else None
    return section("learned", "What was learned", columns, _atoms(engine, use))


def _occupancy(use: LeafUse) -> str:
    count, used = len(use.leaves), int((use.leaves > 0).sum())
    fullest = share(use.leaves.max() / max(1, use.leaves.sum()))
    return (
        f"Descriptors of {use.n_images} images in each of {count} leaves: {used} leaves get any, "
        f"the fullest has {fullest} of them, and half of them are in {use.leaves_of_half}. The "
        "dashed line is the mean."
    )


def _atoms(engine: Engine, use: LeafUse | None) -> Markup | None:
    """The atoms that these images use most; without images there is no order among atoms."""
    if use is None or not use.atoms.sum():
        return None
    dictionary, shares = engine.coder.dictionary, use.atoms / use.atoms.sum()
    chosen = np.argsort(-shares, kind="stable")[:_MOST_ATOMS].tolist()
    figures = [
        tag(
            "li",
            tag(
                "figure",
                glyph(dictionary[atom], f"Atom {atom}"),
                tag("figcaption", f"atom {atom}, {share(shares[atom])}"),
            ),
        )
        for atom in chosen
    ]
    words = (
        f"The {len(chosen)} of {len(dictionary)} atoms that count most in codes of these images. "
        "Each of four by four cells of a patch has a line for each direction of the gradient; "
        "negative entries are dashed."
    )
    return tag("div", tag("h3", "Atoms"), tag("p", words), tag("ul", *figures, class_="atoms"))


def _stages(records: Mapping[str, StageRecord]) -> Markup:
    whole = sum(each.seconds for each in records.values()) or 1.0
    rows: list[tuple[Child, ...]] = [
        (
            key,
            barred(duration(each.seconds), share_bar(each.seconds / whole)),
            duration(each.cpu_seconds),
            gigabytes(each.peak_bytes) if each.peak_bytes else "–",
        )
        for key, each in records.items()
    ]
    cpu = sum(each.cpu_seconds for each in records.values())
    peaks = [each.peak_bytes for each in records.values() if each.peak_bytes is not None]
    rows.append(("together", duration(whole), duration(cpu), gigabytes(max(peaks, default=None))))
    head = ("stage", "time", "CPU time", "raised memory to")
    return section("stages", "Time and memory", table("What each stage took", head, rows))


def _repeat(command: RepeatCommand) -> Markup:
    return section("repeat", "To repeat it", tag("pre", command.text), tag("p", command.origin))


def _provenance(manifest: Manifest) -> Markup:
    provenance: Mapping[str, Any] = manifest.provenance
    own = [
        ("model", f"{manifest.name} version {manifest.version}"),
        ("created", manifest.created),
        ("digest", manifest.digest),
    ]
    others = [
        (key.replace("_", " "), _value(value))
        for key, value in provenance.items()
        if key not in _SHOWN_ELSEWHERE
    ]
    tables: list[Child] = [facts("The bundle and its training", [*own, *others])]
    for key, caption in (("card", "Card"), ("settings", "Settings")):
        members = provenance.get(key)
        if members:
            pairs = [
                (str(each).replace("_", " "), _value(value)) for each, value in members.items()
            ]
            tables.append(facts(caption, pairs))
    return section(
        "provenance", "Provenance", *(tag("div", each, class_="scrolled") for each in tables)
    )


def _value(value: Any) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened_name(text, _LONGEST_VALUE)
