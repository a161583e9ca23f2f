"""Tables in columns read like lists of rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.routing.plan import Fill, Rows

tables = st.lists(st.tuples(st.integers(), st.integers(), st.integers()), max_size=8)


@given(tables, st.slices(8), st.integers(0, 7))
def test_rows_are_those_of_a_list_of_named_tuples(table: list[tuple[int, int, int]], part: slice, at: int) -> None:
    """Length, order, single rows, slices, membership and equality are a list's; the rows are of the kind asked for."""
    listed = [Fill(*row) for row in table]  # type: ignore[arg-type]
    rows: Rows[Fill] = Rows(Fill, *([row[k] for row in table] for k in range(3)))
    assert len(rows) == len(listed)
    assert rows == listed
    assert list(rows) == listed
    assert rows == Rows(Fill, *([row[k] for row in table] for k in range(3)))
    assert rows != [*listed, listed]
    assert rows[part] == listed[part]
    assert all(isinstance(row, Fill) for row in rows)
    if at < len(listed):
        assert rows[at] == listed[at]
        assert rows[at].amount_out == table[at][2]
        assert listed[at] in rows
