"""``python -m cotenant_gateway``."""

import sys

from cotenant_common.runtime.service import main
from cotenant_gateway.app.service import GatewayService
from cotenant_gateway.config import GatewaySettings

if __name__ == "__main__":
    sys.exit(main(GatewayService, GatewaySettings))
