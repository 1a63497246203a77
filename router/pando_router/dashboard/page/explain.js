// Why a request was, or would be, placed on its replica: asked by a click on a recent one, or by two forms. An
// error stands beside the button that was pressed.

class Explanations {
  constructor(wantsKey) {
    this.wantsKey = wantsKey;
    this.body = byId("body");
    this.path = byId("path");
    this.out = byId("explanation");
    byId("past-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.past(byId("request-id").value.trim(), byId("past-error"));
    });
    byId("explain-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const path = `/route/explain?path=${encodeURIComponent(this.path.value)}`;
      this.answer(() => ask(path, { method: "POST", body: this.body.value }), byId("body-error"));
    });
    this.path.addEventListener("change", () => this.sample());
  }

  /** Offers the paths that replicas serve, with a model to ask. */
  begin(paths, model) {
    this.model = model;
    const now = [...this.path.options].map((option) => option.value);
    if (now.length === paths.length && now.every((path, i) => path === paths[i])) return;
    const chosen = this.path.value;
    this.path.replaceChildren(...paths.map((path) => make("option", {}, path)));
    if (paths.includes(chosen)) this.path.value = chosen;
    this.sample();
  }

  /** Fills in an example for the path, unless the user has already typed something. */
  sample() {
    if (this.body.value && this.body.value !== this.sampled) return;
    const sample = SAMPLES[this.path.value];
    this.body.value = this.sampled = sample ? JSON.stringify(sample(this.model), null, 2) : "";
  }

  /** What goes wrong is shown in `wrong`, or where the explanation would be. */
  past(id, wrong = null) {
    return this.answer(() => ask(`/route/explain?request_id=${encodeURIComponent(id)}`), wrong);
  }

  /** Of the table's `row`. */
  ofRow(row) {
    if (row.tries) return this.past(row.request_id);
    const why = {
      401: "its API key is missing or wrong",
      403: "its API key does not allow it",
      404: "no model, or no replica, serves what it asks for",
      413: "its body is too large",
      429: "its tenant is over a limit, or the queue is full",
      499: "its client left",
      503: "no replica was ready in time",
    }[row.status] ?? "something in it was wrong";
    this.show([make("h3", {}, "It was never placed"), make("p", {}, `It ended with ${row.status}: ${why}.`)]);
  }

  async answer(asking, wrong) {
    try {
      const found = await asking();
      if (wrong) wrong.textContent = "";
      this.show((found.tries ?? [found]).flatMap((one) => describe(one)));
    } catch (error) {
      if (error.wantsKey) this.wantsKey(error);
      this.out.replaceChildren();
      if (wrong) wrong.textContent = error.message;
      else this.out.replaceChildren(make("p", { class: "wrong" }, error.message));
    }
  }

  show(elements) {
    this.out.replaceChildren(...elements);
    this.out.scrollIntoView({ block: "nearest" });
  }
}
