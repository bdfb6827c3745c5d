"""What can be measured: the views of bench.cases, and one module for each special measurement."""
