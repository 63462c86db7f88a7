"""One process of a stage: runs a module, and ends when the run that started it is gone.

    python -m worker.training.pipeline.child PARENT MODULE ARGUMENTS...

A run that is killed must not leave processes behind that write into its folder while the next one does.
"""

import os
import runpy
import sys
import threading
import time

_LOOK_EVERY_S = 0.5


def watch_parent(parent: int) -> None:
    """End this process when its parent is another than it was; looks for as long as the process lives."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)


def main() -> None:
    """The command line."""
    parent, module, *arguments = sys.argv[1:]
    threading.Thread(target=watch_parent, args=(int(parent),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
