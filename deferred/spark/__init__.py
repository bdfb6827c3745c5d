"""The only place that knows pyspark: sessions, running rendered SQL, Delta reads, writes and merges."""
