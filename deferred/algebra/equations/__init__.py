"""Figure 2 of the paper literally, the laws that simplify its queries, and the equations of a view, for `explain`."""
