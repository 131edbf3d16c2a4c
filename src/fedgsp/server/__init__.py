"""What the server does with the chains' results: server rules."""

from fedgsp.server.mean import Mean
from fedgsp.server.rule import ServerRule, Update, View

__all__ = ["Mean", "ServerRule", "Update", "View"]
