"""The text of a local rule as a user would write it in a file of their own."""

from __future__ import annotations

from textwrap import indent


def rule_text(body: str, imports: str = "") -> str:
    """A rule `Mine` whose loss term is `body`; its first line is line 12, or two further down with `imports`."""
    return f"""from dataclasses import dataclass

from fedgsp.client import SGD
{imports and f"{chr(10)}{imports}{chr(10)}"}

@dataclass(frozen=True, kw_only=True)
class Mine(SGD):
    def looks_at(self):
        return "logits"

    def loss_term(self, ctx, seen, y):
{indent(body, " " * 8)}
"""
