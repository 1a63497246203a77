"use strict";
// Requests to the router. The API key, if required, is kept in sessionStorage only.

const KEY = "pando-key";

/** What the router answered instead; `status` 0: it was not reached. */
class RouterError extends Error {
  constructor(message, status = 0, retryAfter = null) {
    super(message);
    Object.assign(this, { status, retryAfter });
  }

  /** Whether the key, or its absence, is what was wrong: always for 401, for 403 on an admin's page. */
  get wantsKey() {
    return this.status === 401 || this.status === 403;
  }
}

/** The answer to a request with the key; throws RouterError unless its status is 2xx. */
async function send(path, { headers = {}, ...options } = {}) {
  const key = sessionStorage.getItem(KEY);
  if (key) headers = { ...headers, authorization: `Bearer ${key}` };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    throw new RouterError(error.name === "TimeoutError" ? "the router does not answer" : "the router cannot be reached");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  const message = body.error?.message ?? `the router answered ${answer.status}`;
  throw new RouterError(message, answer.status, answer.headers.get("retry-after"));
}

/** The JSON of the answer. */
async function ask(path, options) {
  return (await send(path, options)).json();
}
