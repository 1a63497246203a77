// Why a request went, or would go, where it does: what /route/explain answers, for people.

const DECIDING = [
  ["replica", "replica", String],
  ["cost_s", "delay caused", format.seconds],
  ["matched_tokens", "cached tokens expected", format.whole],
  ["wait_s", "wait", format.seconds],
  ["work_s", "own work", format.seconds],
  ["outstanding", "requests there", format.whole],
];
const RARE = [
  // shown if one of the candidates has some of it
  ["kv_wait_s", "wait for KV space", format.seconds],
  ["queue", "waiting behind", format.count],
  ["coming", "coming meanwhile", format.count],
  ["pool_s", "delay of a busy pool", format.seconds],
  ["evict_s", "to compute again", format.seconds],
  ["adapter_wait_s", "wait for an adapter slot", format.seconds],
  ["adapter_load_s", "to load the adapter", format.seconds],
  ["adapter_evict_s", "to load another again", format.seconds],
  ["unpinned_tokens", "KV not pinned", format.count],
];

/** The elements that describe one try of a request, or where one that is not sent would go. */
function describe(one) {
  const facts = [`Pool ${one.pool}, model ${one.model}, policy ${one.policy}, ${one.chunks} ${one.chunks === 1 ? "chunk" : "chunks"} of prompt.`];
  if (one.images.length) facts.push(`With ${one.images.join("; ")}.`);
  if (one.hit_reason) facts.push(`Cache: ${one.hit_reason}.`);
  if (one.prompt_tokens !== null && one.cached_tokens !== undefined && one.cached_tokens !== null) {
    facts.push(`${one.cached_tokens} of ${one.prompt_tokens} prompt tokens were cached, ${one.predicted_tokens} expected.`);
  }
  const parts = [
    make("h3", {}, one.chosen ? `It ${one.request_id ? "went" : "would go"} to ${one.chosen}` : "Not decided by cost"),
    make("p", {}, `${one.reason}.`),
    make("p", {}, facts.join(" ")),
  ];
  if (one.candidates.length) parts.push(candidatesOf(one));
  return parts;
}

function candidatesOf(one) {
  const terms = [...DECIDING, ...RARE.filter(([field]) => one.candidates.some((candidate) => candidate[field] > 0))];
  const rows = one.candidates.map((candidate) => terms.map(([field, , show]) => show(candidate[field])));
  const candidates = table("Candidates, the least delay first", terms.map(([, name]) => name), rows);
  candidates.querySelectorAll("tbody tr").forEach((row, i) => {
    if (one.candidates[i].replica === one.chosen) row.className = "chosen";
  });
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" }, candidates);
}
