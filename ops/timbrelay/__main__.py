"""`python -m timbrelay`."""

import sys

from timbrelay.errors import EXIT_INTERRUPTED

if __name__ == "__main__":
    try:
        from timbrelay.cli import main
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    main()
