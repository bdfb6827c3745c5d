"""What the rules are checked against: the reference evaluator, and Figure 3. Nothing that runs imports it."""
