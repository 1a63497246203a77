"""`python -m pando` is the `pando` command; `pando up` starts its processes this way."""

from pando.main import main

main()
