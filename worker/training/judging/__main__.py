"""`python -m worker.training.judging`."""

import sys

from worker.training.judging.command import main

sys.exit(main())
