"""Aggregate functions: what each one is over nothing, in a form without order, made of counted parts, by definition.

To add one, register it in the module of its family and give it a row in tests/algebra/aggregates/test_aggregates.py.
"""

from deferred.algebra.aggregates import collecting, extremes, moments, pairs, percentiles, refused, sketches, sums

__all__ = ["collecting", "extremes", "moments", "pairs", "percentiles", "refused", "sketches", "sums"]
