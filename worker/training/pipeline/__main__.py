"""`python -m worker.training.pipeline`: see the command."""

import sys

from worker.training.pipeline.command import main

sys.exit(main())
