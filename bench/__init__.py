"""The bench: what maintaining a view costs, beside recomputing it by Spark itself. Run it as `python -m bench`."""
