"""Plans over bags and their differentiation: pure Python, no Spark, no I/O."""
