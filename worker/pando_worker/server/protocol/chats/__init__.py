"""Conversations: OpenAI's chats, and two APIs that are read as chats.

Read in this order:
    chat.py            /v1/chat/completions
    anthropic.py       /v1/messages, Anthropic's
    responses.py       /v1/responses, OpenAI's
    response_items.py  their items, as messages
    turns.py           what these two have in common
"""
