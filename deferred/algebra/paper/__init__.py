"""What the rules are checked against: reference evaluator, lemmas and Figure 3. Nothing that runs imports it."""
