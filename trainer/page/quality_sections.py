"""The sections on how good a model is: accuracy, confusions, classes, mistakes, probabilities."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from service.engine import Manifest
from trainer.confusion import ClassFigures, Confusion
from trainer.data.dataset import shortened
from trainer.metrics import Interval
from trainer.page.charts import reliability_chart, whisker
from trainer.page.elements import barred, between, section, share, table
from trainer.page.examples import Example
from trainer.page.findings import Findings, JudgedPart
from trainer.page.markup import Child, Markup, name, shortened_name, tag
from trainer.page.matrix import confusion_matrix

__all__ = ["quality_sections"]

# Mistakes that are listed: their matrix shows those of few classes just as well.
_MOST_CONFUSED = 20
_FEW_CLASSES = 6
_FEW = 5
_WEAKEST = 15
# Of which each takes about 1 kB of the page.
_MOST_CLASSES = 200

_TITLES = {"test": "Test images", "folds": "Folds of the training images"}
_EXPLANATIONS = {
    ("test", "new"): "Images that the model was not trained on.",
    ("folds", "new"): "Each training image, by a classifier that was trained without it and "
    "without its near-duplicates.",
    ("test", "recorded"): "Recorded in the bundle when it was trained: images that it was not "
    "trained on.",
    ("folds", "recorded"): "Recorded in the bundle when it was trained: each training image, by a "
    "classifier that was trained without it.",
    (
        "test",
        "unknown",
    ): "It cannot be told which of these images the model was trained on. If some "
    "were, the figures are too good.",
}


def quality_sections(manifest: Manifest, findings: Findings) -> Iterator[Markup]:
    """Everything about quality that is known."""
    yield _accuracy(manifest, findings.parts)
    confused = [part for part in findings.parts if part.confusion is not None]
    if confused:
        yield section(
            "confusion", "Confusion matrix", *_folded(confused, map(_confusions, confused))
        )
        yield section("classes", "Classes", *_folded(confused, map(_classes, confused)))
    judged = [part for part in findings.parts if part.doubts is not None]
    if judged:
        yield _mistakes(judged)
        yield _doubtful(judged)
    reliable = [part for part in findings.parts if part.reliability]
    if reliable:
        yield _probabilities(reliable)


def _folded(parts: Sequence[JudgedPart], contents: Iterable[Markup]) -> Iterator[Markup]:
    """The content of every part; of many classes only the first is open."""
    for place, (part, content) in enumerate(zip(parts, contents, strict=True)):
        is_long = part.confusion is not None and len(part.confusion.classes) > _WEAKEST
        if place and is_long:
            yield tag("details", tag("summary", _TITLES[part.part]), content)
        else:
            yield tag("div", tag("h3", _TITLES[part.part]), content)


def _accuracy(manifest: Manifest, parts: Sequence[JudgedPart]) -> Markup:
    if not parts:
        words = "Unknown: no class has a second image to test on."
        return section("accuracy", "Accuracy", tag("p", words))
    columns = [_accuracy_column(part) for part in parts]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = [(key, *(column.get(key, "–") for column in columns)) for key in keys]
    head = ("figure", *(_TITLES[part.part] for part in parts))
    notes = [
        tag(
            "p",
            tag("strong", f"{_TITLES[part.part]}. "),
            _EXPLANATIONS[part.part, part.origin],
            None if part.recorded is None else _recorded(part.recorded),
        )
        for part in parts
    ]
    missing = [_untested(part) for part in parts if part.figures.get("untested")]
    tiles = tag("dl", *map(_tile, parts), class_="tiles")
    sentences = (*notes, *missing, _known(manifest))
    return section("accuracy", "Accuracy", tiles, *sentences, table("Figures", head, rows))


def _known(manifest: Manifest) -> Markup | None:
    """The threshold below which images are taken for none of the classes, if there is one."""
    threshold: Any = manifest.config.to_json().get("known_threshold")
    if threshold is None:
        return None
    words = f"An image whose best score is below {threshold:.3f} is taken for none of the classes."
    return tag("p", words)


def _tile(part: JudgedPart) -> Markup:
    figures = part.figures
    interval = figures.get("interval")
    within = "" if interval is None else f" ({_within(interval)})"
    return tag(
        "div",
        tag("dt", f"Accuracy, {_TITLES[part.part].lower()}"),
        tag("dd", tag("strong", share(figures["mean_class_accuracy"])), within),
    )


def _accuracy_column(part: JudgedPart) -> dict[str, Child]:
    """The figures by their names; those in the second list are not always there."""
    figures = part.figures
    column: dict[str, Child] = {
        "mean per-class accuracy": share(figures["mean_class_accuracy"]),
        "with 95 % confidence": _within(figures.get("interval")),
        "accuracy over all images": _share(figures.get("accuracy")),
        "log loss": _rounded(figures.get("log_loss")),
        "calibration error": _rounded(figures.get("calibration_error")),
        "images": figures.get("n_test", "unknown"),
    }
    for key, title in (("kept", "taken for known"), ("rejected", "other images rejected")):
        if figures.get(key) is not None:
            column[title] = share(figures[key])
    return column


def _within(interval: Sequence[float] | None) -> str:
    return "unknown" if interval is None else between((interval[0], interval[1]))


def _share(value: float | None) -> str:
    return "unknown" if value is None else share(value)


def _recorded(accuracy: float) -> str:
    return f" Folds were drawn again; in training their accuracy was {share(accuracy)}."


def _rounded(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _untested(part: JudgedPart) -> Markup:
    names = shortened(part.figures["untested"])
    counted = "counted as missed" if part.part == "folds" else "not counted"
    return tag("p", f"Not tested, {counted}: ", name(names), class_="muted")


def _confusions(part: JudgedPart) -> Markup:
    confusion = part.confusion
    assert confusion is not None  # noqa: S101  # only such parts come here
    images = {each.label: each.images for each in confusion.classes}
    rows = [
        (
            name(each.label),
            name(each.predicted),
            each.images,
            share(each.images / images[each.label]),
        )
        for each in confusion.mistakes[: _MOST_CONFUSED if len(images) > _FEW_CLASSES else _FEW]
    ]
    head = ("class", "taken for", "images", "of its images")
    most = table("The most frequent mistakes", head, rows) if rows else tag("p", "No mistakes.")
    parts = (tag("div", confusion_matrix(confusion)), tag("div", most, _left_out(confusion)))
    beside = "beside" if len(images) <= _FEW_CLASSES else None
    return tag("div", *parts, class_=beside)


def _left_out(confusion: Confusion) -> Markup | None:
    if not confusion.left_out:
        return None
    words = f"Mistakes with {confusion.left_out} further images are not recorded in the bundle."
    return tag("p", words, class_="muted")


def _classes(part: JudgedPart) -> Markup:
    confusion = part.confusion
    assert confusion is not None  # noqa: S101  # only such parts come here
    weakest = confusion.weakest[:_MOST_CLASSES]
    first = _class_table("Recall and precision, the weakest class first", weakest[:_WEAKEST])
    rest = None
    if len(weakest) > _WEAKEST:
        rest = tag(
            "details",
            tag("summary", f"The other {len(weakest) - _WEAKEST} classes"),
            _class_table("Recall and precision of the other classes", weakest[_WEAKEST:]),
        )
    note = None
    if len(confusion.weakest) > _MOST_CLASSES:
        note = tag("p", f"Only the weakest {_MOST_CLASSES} classes are listed.", class_="muted")
    return tag("div", first, rest, note)


def _class_table(caption: str, classes: Sequence[ClassFigures]) -> Markup:
    head = ("class", "images", "recall, 95 % confidence", "precision, 95 % confidence")
    rows = [
        (
            name(each.label),
            each.images,
            _share_cell(each.recall, each.recall_interval),
            _share_cell(each.precision, each.precision_interval),
        )
        for each in classes
    ]
    return table(caption, head, rows)


def _share_cell(value: float | None, interval: Interval | None) -> Child:
    if value is None or interval is None:
        return "no image got this label"
    return barred(f"{share(value)} ({between(interval)})", whisker(value, interval))


def _mistakes(parts: Sequence[JudgedPart]) -> Markup:
    lists = [
        tag(
            "div",
            tag("h3", _TITLES[part.part]) if len(parts) > 1 else None,
            _examples(part.doubts.mistakes) if part.doubts.mistakes else tag("p", "None."),
        )
        for part in parts
        if part.doubts is not None
    ]
    words = (
        "The wrong labels that were surest. The second picture of each shows where the model finds "
        "the wrong label rather than the right one: red speaks for the wrong label, blue for the "
        "right one."
    )
    of_folds = (
        "Of folds, the mistake is that of a classifier which had not seen the image; the picture "
        "is that of the model itself, which has."
        if any(part.part == "folds" for part in parts)
        else None
    )
    return section("mistakes", "Worst mistakes", tag("p", words, " ", of_folds), *lists)


def _doubtful(parts: Sequence[JudgedPart]) -> Markup:
    lists = []
    for part in parts:
        doubts = part.doubts
        if doubts is None:
            continue
        shown, count = len(doubts.doubtful), doubts.n_doubtful
        which = "" if shown == count else f", of which the most doubtful {shown} are shown"
        lists.append(
            tag(
                "div",
                tag("h3", _TITLES[part.part]) if len(parts) > 1 else None,
                tag("p", f"{count} image{'' if count == 1 else 's'}{which}.") if count else None,
                _examples(doubts.doubtful, narrow=True) if shown else tag("p", "None."),
            )
        )
    words = (
        "Images that a classifier which had not seen them takes for another class, as surely as it "
        "knows the images of that class. Some are mistakes of the classifier: look before you move "
        "a file."
    )
    return section("labels", "Labels that are probably wrong", tag("p", words), *lists)


def _examples(examples: Sequence[Example], *, narrow: bool = False) -> Markup:
    kind = "examples narrow" if narrow else "examples"
    return tag("ul", *(tag("li", _figure(each)) for each in examples), class_=kind)


def _figure(example: Example) -> Markup:
    file, label, predicted = map(shortened_name, (example.name, example.label, example.predicted))
    pictures = [
        _image(data, words)
        for data, words in (
            (example.picture, f"{file}: {label}, taken for {predicted}"),
            (example.overlay, f"Where {predicted} is seen rather than {label}"),
        )
        if data is not None
    ]
    caption = tag(
        "figcaption",
        tag("strong", name(example.label)),
        f" {share(example.own_probability)}, taken for ",
        tag("strong", name(example.predicted)),
        f" {share(example.probability)} ",
        tag("span", name(example.name), class_="muted"),
    )
    missing = tag("p", "This file cannot be read any more.", class_="muted")
    shown_pictures = tag("div", *pictures, class_="pictures") if pictures else missing
    return tag("figure", shown_pictures, caption)


def _image(data: bytes, words: str) -> Markup:
    source = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    return tag("img", src=source, alt=words, loading="lazy")


def _probabilities(parts: Sequence[JudgedPart]) -> Markup:
    words = (
        "Of the labels with a probability of 80 %, four of five should be right. Dots are groups "
        "of labels with about the same probability, lines where their share lies with 95 % "
        "confidence, and bars how many there are; dots on the dashed line are as sure as they "
        "should be."
    )
    charts = [
        tag(
            "div",
            tag("h3", _TITLES[part.part]),
            reliability_chart(part.reliability),
            tag(
                "p",
                f"Calibration error {part.figures['calibration_error']:.3f}: by so much "
                "probabilities and shares differ on average.",
            ),
        )
        for part in parts
    ]
    columns = tag("div", *charts, class_="columns")
    return section("probabilities", "Probabilities", tag("p", words), columns)
