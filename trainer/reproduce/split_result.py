"""What one cell gave on one split."""

from dataclasses import dataclass

__all__ = ["SplitResult"]


@dataclass(frozen=True)
class SplitResult:
    """A cell on one split: the figure of the paper's tables, and how it came about."""

    mean_class_accuracy: float
    fold_accuracy: float | None
    regularisation: float
    n_train: int
    n_test: int
    n_classes: int
