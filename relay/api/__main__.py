"""`python -m relay.api > docs/openapi.json`: the document, without a server."""

from __future__ import annotations

import json
import sys

from relay.api.document import make_document
from relay.app import make_api

sys.stdout.write(json.dumps(make_document(make_api(None)), indent=1, ensure_ascii=False) + "\n")
