"""Random views and random changes: the rendered delta programs against recomputation, on DuckDB in milliseconds."""
