// One conversation as it is seen: its settings, its turns, and the field to write in. It goes on with its
// answer while another is shown.

const NEAR_END_PX = 40; // a log that is scrolled so near to its end follows it

class Pane {
  /** `page` has models, mayExplain, changed() and wantKey(error). */
  constructor(conversation, page) {
    Object.assign(this, { conversation, page, abort: null });
    this.node = byId("pane").content.firstElementChild.cloneNode(true);
    const part = (name) => this.node.querySelector(`.${name}`);
    [this.log, this.field, this.sendButton, this.stopButton] = ["log", "message", "send", "stop"].map(part);
    this.model = part("model");
    this.values = part("values");
    this.status = part("status");
    this.empty = part("empty");
    this.fill(part("system"), "system");
    this.fill(part("temperature"), "temperature");
    this.fill(this.model, "model");
    this.views = conversation.turns.map((turn) => this.view(turn));
    this.views.slice(0, -1).forEach((view) => view.retire());
    this.listen(part("composer"));
    this.offerModels();
    this.name();
  }

  get isStreaming() {
    return this.abort !== null;
  }

  /** A setting of the conversation, in its field. */
  fill(field, name) {
    field.value = this.conversation[name];
    field.addEventListener("change", () => {
      if (field.checkValidity()) this.conversation[name] = field.value;
      else field.reportValidity();
      this.name();
      this.page.changed();
    });
  }

  listen(form) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("input", () => this.fit());
    this.stopButton.addEventListener("click", () => this.stop());
  }

  /** The models that can be had; the one chosen stays, even where it is gone: the router will say so. */
  offerModels() {
    const { conversation } = this;
    conversation.model ||= this.page.models[0] ?? "";
    const names = new Set([...this.page.models, conversation.model].filter(Boolean));
    this.model.replaceChildren(...[...names].map((name) => make("option", {}, name)));
    this.model.value = conversation.model;
    this.name();
  }

  /** What the conversation is called, and what its settings are, in short. */
  name() {
    const { model, temperature, system } = this.conversation;
    this.node.setAttribute("aria-label", titleOf(this.conversation));
    this.values.textContent = [model, temperature && `temperature ${temperature}`, system.trim() && `“${system.trim().slice(0, 80)}”`]
      .filter(Boolean).join(" · ");
    this.empty.hidden = this.conversation.turns.length > 0;
  }

  view(turn) {
    const view = new TurnView(turn, () => this.answer(), () => this.page.mayExplain);
    this.log.append(view.node);
    return view;
  }

  /** The field is as high as what is in it, up to a limit in the style sheet. */
  fit() {
    this.field.rows = Math.min(8, this.field.value.split("\n").length);
  }

  send() {
    const question = this.field.value.trim();
    if (!question || this.isStreaming) return;
    this.field.value = "";
    this.fit();
    const { turns } = this.conversation;
    turns.push({ question, answer: "", reasoning: "", state: "new", error: null, facts: null });
    this.views.at(-1)?.retire();
    this.views.push(this.view(turns.at(-1)));
    this.name();
    return this.answer();
  }

  /** Has the last question answered, for the first time or again. */
  async answer() {
    if (this.isStreaming) return;
    const { conversation } = this;
    const turn = conversation.turns.at(-1);
    Object.assign(turn, { answer: "", reasoning: "", state: "new", error: null, facts: null });
    this.views.pop().node.remove();
    const view = this.view(turn);
    this.views.push(view);
    view.wait();
    this.log.scrollTop = this.log.scrollHeight;
    this.abort = new AbortController();
    this.busy("Waiting for the answer.");
    try {
      await stream(conversation, {
        signal: this.abort.signal,
        explain: this.page.mayExplain,
        grown: (kind, piece) => this.grown(view, kind, piece),
      });
      turn.state = "done";
    } catch (error) {
      this.failed(turn, error);
    }
    this.abort = null;
    view.isNew = true;
    this.follow(() => view.settle());
    this.busy(turn.error ? "" : turn.state === "stopped" ? "Stopped." : "The answer is complete.");
    this.page.changed();
  }

  failed(turn, error) {
    if (this.abort.signal.aborted) {
      turn.state = "stopped";
      return;
    }
    turn.state = "failed";
    turn.error = { title: titleOfError(error, turn.facts !== null), message: error.message, retryAfter: error.retryAfter ?? null };
    if (error.status === 401) this.page.wantKey(error);
  }

  grown(view, kind, piece) {
    if (view.turn.state === "new") {
      view.turn.state = "streaming";
      view.begun();
    }
    view.grown(kind, piece);
    this.follow();
  }

  /** Keeps the log at its end, where it is, through a change. */
  follow(change = () => {}) {
    const isNear = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR_END_PX;
    change();
    if (isNear) requestAnimationFrame(() => { this.log.scrollTop = this.log.scrollHeight; });
  }

  /** Frees the replica at once: the connection ends, and with it the request. */
  stop() {
    this.abort?.abort();
  }

  busy(text) {
    this.status.textContent = text;
    this.sendButton.hidden = this.isStreaming;
    this.stopButton.hidden = !this.isStreaming;
  }
}
