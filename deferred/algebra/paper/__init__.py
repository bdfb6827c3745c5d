"""The paper, literally: Figures 2 and 3, their laws and notation, and the reference evaluator they are checked on."""
