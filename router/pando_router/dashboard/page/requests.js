// The last requests, newest first, as the router keeps them: the last ones, and the last that did not go smoothly.
// A click on one, or Enter, explains it. The table stands still while it is in use.

const MOST_REQUESTS = 100; // of each kind, as the router keeps

const isRough = (row) => row.status >= 400 || row.tries > 1 || !row.complete;

const KINDS = {
  all: () => true,
  failed: (row) => row.status >= 500 || (row.status < 400 && !row.complete),
  refused: (row) => row.status >= 400 && row.status < 500,
  moved: (row) => row.tries > 1,
};

const REQUEST_COLUMNS = ["time", "status", "replica", "first token", "cached of prompt", "in all", "moves", "model", "path"];

class RequestTable {
  /** `explain(row)` is called with the request that is asked about. */
  constructor(explain) {
    Object.assign(this, { explain, rows: [], stale: false });
    this.kind = byId("request-kind");
    this.region = byId("requests");
    this.held = byId("held");
    this.body = make("tbody");
    const head = make("tr", {}, REQUEST_COLUMNS.map((name) => make("th", { scope: "col" }, name)));
    this.region.append(make("table", {}, [
      make("caption", {}, "Requests that have ended, the latest first"), make("thead", {}, head), this.body,
    ]));
    this.kind.addEventListener("change", () => this.draw({ always: true }));
    this.body.addEventListener("click", (event) => this.ask(event.target.closest("tr")));
    this.body.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["pointerleave", "focusout"]) {
      this.region.addEventListener(name, () => setTimeout(() => this.draw()));
    }
  }

  get isInUse() {
    return this.region.matches(":hover") || this.body.contains(document.activeElement);
  }

  take(rows) {
    const all = [...this.rows, ...rows];
    const rough = new Set(all.filter(isRough).slice(-MOST_REQUESTS));
    const last = new Set(all.slice(-MOST_REQUESTS));
    this.rows = all.filter((row) => rough.has(row) || last.has(row));
    if (rows.length) this.stale = true;
    if (this.stale && !this.isInUse) this.draw();
    this.held.classList.toggle("blank", !(this.stale && this.isInUse));
  }

  reset() {
    this.rows = [];
  }

  draw({ always = false } = {}) {
    if (!always && this.isInUse && this.body.children.length) return;
    this.stale = false;
    this.held.classList.add("blank");
    const shown = this.rows.filter(KINDS[this.kind.value]).slice(-MOST_REQUESTS).reverse();
    this.body.replaceChildren(...shown.map((row, i) => this.line(row, i)));
    if (!shown.length) {
      const cell = make("td", { colspan: REQUEST_COLUMNS.length }, "None so far.");
      this.body.replaceChildren(make("tr", {}, cell));
    }
  }

  line(row, i) {
    const tone = row.status >= 500 ? "bad" : row.status >= 400 ? "two" : row.complete ? "good" : "bad";
    const cut = row.status < 400 && !row.complete ? ", cut off" : "";
    const cached = row.prompt_tokens === null ? "–" : `${format.whole(row.cached_tokens)} of ${format.whole(row.prompt_tokens)}`;
    const moves = [];
    if (row.migrations) moves.push(`${row.migrations} migrated`);
    if (row.tries - 1 - row.migrations > 0) moves.push(`${row.tries - 1 - row.migrations} retried`);
    const cells = [
      format.clock(row.at), [make("span", { class: tone }, `${row.status}${cut}`)], row.replica || "–", format.seconds(row.ttfb_s),
      cached, format.seconds(row.duration_s), moves.join(", ") || "–", row.model || "–", row.path,
    ];
    const line = make("tr", { tabindex: i ? "-1" : "0", "aria-label": `Explain the request of ${cells[0]}` },
      cells.map((cell) => make("td", {}, cell)));
    line.row = row;
    return line;
  }

  key(event) {
    const line = event.target.closest("tr");
    if (event.key === "Enter" || event.key === " ") this.ask(line);
    else if (event.key === "ArrowDown") line.nextElementSibling?.focus();
    else if (event.key === "ArrowUp") line.previousElementSibling?.focus();
    else return;
    event.preventDefault();
  }

  ask(line) {
    if (!line?.row) return;
    for (const other of this.body.children) other.classList.toggle("chosen", other === line);
    this.explain(line.row);
  }
}
