// A card for each replica: its state, its KV memory as a stacked bar, and its numbers.

const FIELDS = [
  ["running", "running", format.whole],
  ["waiting", "waiting", format.whole],
  ["in_flight", "from this router", format.whole],
  ["hit_rate", "cached since its start", format.share],
  ["prefill_tokens_per_s", "prefill tokens/s", format.count],
  ["decode_tokens_per_s", "decode tokens/s", format.count],
  ["adapter_slots", "adapter slots", format.whole],
  ["free_adapter_slots", "of these free", format.whole],
];

class ReplicaCards {
  constructor(list) {
    this.list = list;
    this.cards = new Map();
  }

  update(pools) {
    const rows = Object.entries(pools).flatMap(([pool, replicas]) =>
      replicas.map((row) => ({ ...row, pool, id: `${pool}/${row.replica}` })));
    const known = this.cards;
    this.cards = new Map(rows.map((row) => [row.id, known.get(row.id) ?? new ReplicaCard(row)]));
    const nodes = [...this.cards.values()].map((card) => card.node);
    if (nodes.some((node, i) => node !== this.list.children[i]) || nodes.length !== this.list.children.length) {
      this.list.replaceChildren(...nodes);
    }
    rows.forEach((row) => this.cards.get(row.id).update(row));
  }
}

class ReplicaCard {
  constructor(row) {
    this.state = make("span", { class: "state" });
    this.bars = ["pinned", "cached"].map((kind) => svg("rect", { class: kind, height: 14, y: 0 }));
    this.bar = svg("svg", { class: "bar", role: "img", viewBox: "0 0 100 14", preserveAspectRatio: "none" }, this.bars);
    this.kv = make("span", { class: "value" });
    this.numbers = FIELDS.map(() => make("dd", {}, "–"));
    const terms = FIELDS.flatMap(([, name], i) => [make("dt", {}, name), this.numbers[i]]);
    const name = make("h3", {}, [this.state, `${row.pool} / ${row.replica}`]);
    this.node = make("li", {}, [name, this.bar, this.kv, make("dl", {}, terms)]);
  }

  update(row) {
    const troubles = [];
    if (row.breaker !== "closed") troubles.push(`breaker ${row.breaker}`);
    if (!row.healthy) troubles.push("fails its checks");
    this.state.textContent = [row.state, ...troubles].join(", ");
    const fine = row.state === "ready" && !troubles.length;
    this.state.className = `state ${fine ? "good" : ["lost", "stalled"].includes(row.state) || troubles.length ? "bad" : ""}`;
    const size = row.capacity_tokens;
    const shares = [row.pinned_tokens, row.cached_tokens].map((n) => (size ? (100 * n) / size : 0));
    this.bars.forEach((bar, i) => {
      bar.setAttribute("x", i ? shares[0] : 0);
      bar.setAttribute("width", shares[i]);
    });
    const kinds = ["pinned", "cached", "free"];
    const text = size
      ? kinds.map((kind) => `${format.count(row[`${kind}_tokens`])} ${kind}`).join(", ") + " tokens"
      : "it does not say how much KV memory it has";
    this.kv.textContent = text;
    this.bar.setAttribute("aria-label", `KV memory of ${row.replica}: ${text}`);
    FIELDS.forEach(([field, , show], i) => {
      this.numbers[i].textContent = show(row[field]);
    });
  }
}
