"""SQL text to plan and plan to SQL text, on sqlglot; what a view may not contain, and why. No Spark."""
