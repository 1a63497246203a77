// One request: its answer's events as they come, and what they and its headers say of it.

/** The events of a stream. Throws RouterError at an error event, and where the stream is cut. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) throw new RouterError("the connection ended before the answer did");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new RouterError(event.error.message ?? "it ended with an error");
      yield event;
    }
  }
}

const numberOf = (text) => (text === null ? null : Number(text));

/**
 * Asks for the answer of the conversation's last turn and fills it: `answer` and `reasoning` as they
 * grow, and `facts`. Calls `grown(kind, piece)` for each piece. Throws RouterError.
 */
async function stream(conversation, { signal, explain, grown }) {
  const turn = conversation.turns.at(-1);
  const temperature = conversation.temperature === "" ? {} : { temperature: Number(conversation.temperature) };
  const body = {
    model: conversation.model,
    messages: messagesOf(conversation),
    stream: true,
    stream_options: { include_usage: true },
    ...temperature,
  };
  const headers = { "content-type": "application/json", ...(explain ? { "x-pando-explain": "true" } : {}) };
  const began = performance.now();
  const response = await send("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  const said = (name) => response.headers.get(name);
  const facts = (turn.facts = {
    request_id: said("x-request-id"),
    replica: said("x-pando-replica"),
    prompt_tokens: numberOf(said("x-pando-prompt-tokens")),
    cached_tokens: numberOf(said("x-pando-cached-tokens")),
    output_tokens: null,
    first_s: null,
    last_s: null,
    finish: null,
  });
  for await (const { choices, usage } of eventsOf(response)) {
    const [choice] = choices ?? [];
    const pieces = [["reasoning", choice?.delta?.reasoning_content], ["answer", choice?.delta?.content]];
    for (const [kind, piece] of pieces) {
      if (!piece) continue;
      facts.last_s = (performance.now() - began) / 1000;
      facts.first_s ??= facts.last_s;
      turn[kind] += piece;
      grown(kind, piece);
    }
    facts.finish ??= choice?.finish_reason ?? null;
    if (!usage) continue;
    facts.prompt_tokens = usage.prompt_tokens;
    facts.output_tokens = usage.completion_tokens;
    facts.cached_tokens = usage.prompt_tokens_details?.cached_tokens ?? facts.cached_tokens;
  }
}

/** Tokens a second after the first one; null where there are too few, or where none were counted. */
function speedOf({ output_tokens, first_s, last_s }) {
  return output_tokens > 1 && last_s > first_s ? (output_tokens - 1) / (last_s - first_s) : null;
}
