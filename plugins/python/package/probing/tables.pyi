# SPDX-License-Identifier: Apache-2.0
from typing import Any, Tuple

class Table:
    name: str
    columns: Tuple[Tuple[str, int, str], ...]
    def append(self, *values: Any, **named: Any) -> None: ...
