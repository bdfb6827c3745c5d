"""How results look in a notebook, and as tables of pandas and Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")


class Listing(list[T]):
    """A list of results that a notebook shows as a table.

    >>> found = Listing([{"view": "v", "rows": 3}, {"view": "w", "rows": None}])
    >>> found.to_arrow().to_pydict()
    {'view': ['v', 'w'], 'rows': [3, None]}
    >>> found[0]["rows"]
    3
    """

    def rows(self) -> list[dict[str, Any]]:
        """Each result as names and values; what is not a single value is JSON."""
        return [{name: _single(value) for name, value in _fields(item).items()} for item in self]

    def to_pandas(self) -> pd.DataFrame:
        """A pandas DataFrame with a row for each result."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_arrow(self) -> pa.Table:
        """An Arrow table with a row for each result."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows())

    def _repr_html_(self) -> str:
        rows = self.rows()
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return html_table(columns, [[row.get(name) for name in columns] for row in rows])


class Result:
    """A single result that a notebook shows as a table of its fields, without those that say nothing.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Found(Result):
    ...     view: str
    ...     cut: dict[str, int]
    >>> Found("v", {"sales": 3}).to_arrow().to_pylist()
    [{'view': 'v', 'cut': '{"sales": 3}'}]
    """

    def to_pandas(self) -> pd.DataFrame:
        """A pandas DataFrame of one row, with a column for each field."""
        return Listing([self]).to_pandas()

    def to_arrow(self) -> pa.Table:
        """An Arrow table of one row, with a column for each field."""
        return Listing([self]).to_arrow()

    def _repr_html_(self) -> str:
        fields = {name: _single(value) for name, value in _fields(self).items()}
        said = [(name, value) for name, value in fields.items() if value not in (None, "", "{}", "[]", "()")]
        return html_table((), said)


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as HTML; what is in it is text, whatever it looks like.

    >>> html_table(["a"], [["<b>"], [None]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr><tr><td></td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def _fields(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    return asdict(item) if is_dataclass(item) and not isinstance(item, type) else {"": item}


def _single(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, datetime, date)):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)
