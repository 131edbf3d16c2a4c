"""`fedgsp.models(data)`: the models that go by a name, and what each takes, gives and has for some data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedgsp.core.tables import html_table, text_table
from fedgsp.data import FederatedData, load
from fedgsp.models.catalog import BUILT_IN, FittingModel, SampleKind, fitting, summary_of

SHOWN = 8


@dataclass(frozen=True, repr=False)
class ModelTable:
    """Named models: all there are, or those that fit some data, smallest first.

    Attributes:
        summaries: What each is in a line, by name.
        fitting: What goes in and out of each, and its parameters, for the data that was given; None: none was.
    """

    summaries: dict[str, str]
    fitting: Sequence[FittingModel] | None = None

    @property
    def names(self) -> list[str]:
        """What to say for `model=`."""
        return list(self.summaries)

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        if self.fitting is None:
            return ("model", "what it is"), list(self.summaries.items())
        rows: list[tuple[str, ...]]
        rows = [(m.name, "x".join(map(str, m.shape)) or "1", str(m.outputs), f"{m.parameters:,}") for m in self.fitting]
        return ("model", "shape in", "classes out", "parameters"), rows

    def __repr__(self) -> str:
        return "\n".join(text_table(*self._table(), most=SHOWN)) if self.summaries else "no named model fits these samples"

    def _repr_html_(self) -> str:
        return html_table("Models" if self.summaries else "No named model fits these samples", *self._table())


def models(data: str | FederatedData | None = None) -> ModelTable:
    """The models that go by a name.

    Args:
        data: A federation, or a source text: only those that fit it, with shape in, classes out and parameters. None: all.

    Returns:
        The table; it shows itself in a notebook.

    Raises:
        InputError: The source cannot be read.

    Example:
        >>> import fedgsp
        >>> fedgsp.models("glyphs:clients=2").names[:2]
        ['small_cnn', 'linear']
    """
    if data is None:
        return ModelTable({name: summary_of(factory) for name, factory in BUILT_IN.items()})
    there = load(data) if isinstance(data, str) else data
    found = fitting(SampleKind(there.sample_shape, there.classes, there.target_shape, there.count_tokens, there.padding))
    return ModelTable({one.name: one.summary for one in found}, found)
