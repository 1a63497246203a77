// The forms that ask the router why a request went, or would go, where it does.

const TERMS = [
  ["replica", "replica", String],
  ["matched_tokens", "cached tokens expected", format.whole],
  ["wait_s", "wait", format.seconds],
  ["kv_wait_s", "wait for KV space", format.seconds],
  ["work_s", "own work", format.seconds],
  ["queue", "waiting behind", format.count],
  ["coming", "coming meanwhile", format.count],
  ["pool_s", "delay of a busy pool", format.seconds],
  ["evict_s", "to compute again", format.seconds],
  ["cost_s", "delay caused", format.seconds],
  ["outstanding", "requests there", format.whole],
  ["unpinned_tokens", "KV not pinned", format.count],
];

const SAMPLES = {
  "/v1/chat/completions": (model) => ({ model, messages: [{ role: "user", content: "What is a grove?" }] }),
  "/v1/completions": (model) => ({ model, prompt: "A grove is" }),
};

class ExplainForms {
  constructor(byId, wantsKey) {
    this.body = byId("body");
    this.path = byId("path");
    this.out = byId("explanation");
    byId("past-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const id = encodeURIComponent(byId("request-id").value.trim());
      this.answer(() => ask(`/route/explain?request_id=${id}`), wantsKey);
    });
    byId("explain-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const path = `/route/explain?path=${encodeURIComponent(this.path.value)}`;
      this.answer(() => ask(path, { method: "POST", body: this.body.value }), wantsKey);
    });
    this.path.addEventListener("change", () => this.sample());
  }

  /** Once the paths and a model are known. */
  begin(paths, model) {
    if (this.path.options.length) return;
    this.model = model;
    this.path.append(...paths.map((path) => make("option", {}, path)));
    this.sample();
  }

  /** An example for the path, unless something was written already. */
  sample() {
    if (this.body.value && this.body.value !== this.sampled) return;
    const sample = SAMPLES[this.path.value] ?? ((model) => ({ model }));
    this.body.value = this.sampled = JSON.stringify(sample(this.model), null, 2);
  }

  async answer(asking, wantsKey) {
    try {
      const found = await asking();
      const tries = found.tries ?? [found];
      this.out.replaceChildren(...tries.flatMap((one) => this.describe(one)));
    } catch (error) {
      if (error instanceof WantsKeyError) wantsKey(error);
      this.out.replaceChildren(make("p", {}, error.message));
    }
  }

  describe(one) {
    const facts = [`Pool ${one.pool}, model ${one.model}, policy ${one.policy}, ${one.chunks} chunks of prompt.`];
    if (one.hit_reason) facts.push(`Cache: ${one.hit_reason}.`);
    if (one.prompt_tokens !== null && one.cached_tokens !== undefined && one.cached_tokens !== null) {
      facts.push(`${one.cached_tokens} of ${one.prompt_tokens} prompt tokens were cached, ${one.predicted_tokens} expected.`);
    }
    const parts = [
      make("h3", {}, one.chosen ? `It ${one.request_id ? "went" : "would go"} to ${one.chosen}` : "Not decided by cost"),
      make("p", {}, `${one.reason}.`),
      make("p", {}, facts.join(" ")),
    ];
    if (one.candidates.length) {
      const rows = one.candidates.map((candidate) => TERMS.map(([field, , show]) => show(candidate[field])));
      const candidates = table("Candidates, the least delay first", TERMS.map(([, name]) => name), rows);
      candidates.querySelectorAll("tbody tr").forEach((row, i) => {
        if (one.candidates[i].replica === one.chosen) row.className = "chosen";
      });
      parts.push(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" }, candidates));
    }
    return parts;
  }
}
