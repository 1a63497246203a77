"use strict";
// Requests to the router. An admin's key, where one is wanted, lives in sessionStorage alone.

const KEY = "pando-admin-key";

class WantsKeyError extends Error {}

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  const message = body.error?.message ?? `the router answered ${answer.status}`;
  throw answer.status === 401 || answer.status === 403
    ? new WantsKeyError(message)
    : new Error(message);
}
