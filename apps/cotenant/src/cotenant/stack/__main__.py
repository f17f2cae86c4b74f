"""``python -m cotenant.stack OPTIONS-AS-JSON``."""

import sys

from cotenant.stack.run import from_arguments

if __name__ == "__main__":
    sys.exit(from_arguments(sys.argv[1:]))
