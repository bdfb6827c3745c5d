"""A test file per operator; what they share is in cases.py, whose assertions show both sides as those of a test do."""

import pytest

pytest.register_assert_rewrite("tests.algebra.operators.cases")
