"""Conversations, their locks and their endpoints."""

from __future__ import annotations

from trt_responses.features.conversations.endpoint import ConversationRoutes
from trt_responses.features.conversations.feature import InConversations
from trt_responses.features.conversations.locks import Locks
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    locks = Locks(server.store, server.sleep)
    server.features.append(InConversations(locks))
    server.lives.append(locks.life)
    server.add_routes(50, lambda shared: [ConversationRoutes(shared)])
