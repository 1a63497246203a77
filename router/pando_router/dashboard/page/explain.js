// The forms that ask the router why a request was, or would be, placed on a replica.

const SAMPLES = {
  "/v1/chat/completions": (model) => ({ model, messages: [{ role: "user", content: "What is a grove?" }] }),
  "/v1/completions": (model) => ({ model, prompt: "A grove is" }),
};

class ExplainForms {
  constructor(wantsKey) {
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

  /** Enables the form once the paths and a model are known. */
  begin(paths, model) {
    if (this.path.options.length) return;
    this.model = model;
    this.path.append(...paths.map((path) => make("option", {}, path)));
    this.sample();
  }

  /** Fills in an example for the path, unless the user has already typed something. */
  sample() {
    if (this.body.value && this.body.value !== this.sampled) return;
    const sample = SAMPLES[this.path.value] ?? ((model) => ({ model }));
    this.body.value = this.sampled = JSON.stringify(sample(this.model), null, 2);
  }

  async answer(asking, wantsKey) {
    try {
      const found = await asking();
      const tries = found.tries ?? [found];
      this.out.replaceChildren(...tries.flatMap((one) => describe(one)));
    } catch (error) {
      if (error.wantsKey) wantsKey(error);
      this.out.replaceChildren(make("p", {}, error.message));
    }
  }
}
