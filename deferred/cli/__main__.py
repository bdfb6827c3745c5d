"""`python -m deferred.cli`: the command line without the installed script."""

from deferred.cli import main

main()
