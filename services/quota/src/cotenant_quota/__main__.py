"""``python -m cotenant_quota``."""

import sys

from cotenant_common.runtime.service import main
from cotenant_quota.app import QuotaService
from cotenant_quota.config import QuotaSettings

if __name__ == "__main__":
    sys.exit(main(QuotaService, QuotaSettings))
