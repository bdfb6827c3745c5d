"""The same history wherever users run it: clusters, Spark Connect, both databases, object storage; and where it fails.

`make where` runs all of it. It is not part of the suite: jars for object storage are 690 MB.
"""
