"""A page to talk to the models, at `/chat` where the setting `chat_page` is on.

`routes` serves the page; all else is in it. It asks for what any client may: `/v1/models`,
`/v1/chat/completions`, and, with an admin's key, `/route/explain`. `page/` in reading order:

- `main.js`: the page as a whole: its conversations, which are shown, the API key
- `pane.js`: one conversation: settings, turns, the field to write in
- `turn.js`: a question, its answer, and what is known of it: replica, tokens, times, why there
- `stream.js`: one request and the events of its answer
- `store.js`: conversations in sessionStorage
- `answer.js`, `blocks.js`, `inline.js`: markdown to elements, while it grows
"""
