"""`python -m relay.native > docs/asyncapi.json`: the document, without a server."""

from __future__ import annotations

import json
import sys

from relay.native.document import make_document

sys.stdout.write(json.dumps(make_document(), indent=1, ensure_ascii=False) + "\n")
