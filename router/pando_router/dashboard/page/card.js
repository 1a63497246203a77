// A card for one replica: its state, its KV memory as a stacked bar, and its numbers.

const FIELDS = [
  ["running", "running", format.whole],
  ["waiting", "waiting", format.whole],
  ["in_flight", "from this router", format.whole],
  ["hit_rate", "cached since its start", format.share],
  ["prefill_tokens_per_s", "prefill tokens/s", format.count],
  ["decode_tokens_per_s", "decode tokens/s", format.count],
  ["adapter_slots", "adapter slots", format.whole],
  ["free_adapter_slots", "of these free", format.whole],
  ["encoded_sources", "inputs encoded", format.whole],
  ["source_hit_rate", "inputs found encoded", format.share],
];

// Only workers with adapters have slots, only encoder-decoders encode: "–" on every other card would say nothing.
const OF_SOME = new Set(["adapter_slots", "free_adapter_slots", "encoded_sources", "source_hit_rate"]);

const STALE_MS = 2000; // heartbeats come twice a second

/** Its state in words, with what this router holds against it. */
function stateOf(row) {
  const troubles = [];
  if (row.breaker !== "closed") troubles.push(`breaker ${row.breaker}`);
  if (!row.healthy) troubles.push("fails its checks");
  const share = row.stage_done ? ` ${format.share(row.stage_done)}` : "";
  const state = row.state === "starting" && row.stage ? `starting: ${row.stage}${share}` : row.state;
  return [state, ...troubles].join(", ");
}

/** How bad it is: 0 is ready and well, 4 is lost. */
function severity(row) {
  if (row.state === "lost") return 4;
  if (row.state === "stalled") return 3;
  if (!row.healthy || row.breaker !== "closed") return 2;
  return row.state === "ready" ? 0 : 1;
}

const TONES = ["good", "two", "bad", "bad", "bad"]; // by severity

class ReplicaCard {
  constructor(row) {
    this.state = make("span", { class: "state" });
    this.bars = ["pinned", "cached"].map((kind) => svg("rect", { class: kind, height: 14, y: 0 }));
    this.bar = svg("svg", { class: "bar", role: "img", viewBox: "0 0 100 14", preserveAspectRatio: "none" }, this.bars);
    this.kv = make("span", { class: "value" });
    this.age = make("span", { class: "value" });
    this.numbers = FIELDS.map(() => make("dd", {}, "–"));
    this.terms = FIELDS.map(([, name]) => make("dt", {}, name));
    const name = make("h3", {}, [make("span", {}, `${row.pool} / ${row.replica}`), this.state]);
    const pairs = this.terms.flatMap((term, i) => [term, this.numbers[i]]);
    this.node = make("li", {}, [name, make("p", { class: "value" }, [row.model, this.age]), this.bar, this.kv, make("dl", {}, pairs)]);
  }

  update(row) {
    this.state.textContent = stateOf(row);
    this.state.className = `state ${TONES[severity(row)]}`;
    const isStale = row.age_ms > STALE_MS;
    this.node.classList.toggle("stale", isStale);
    this.age.textContent = isStale ? `, as it was ${format.ago(row.age_ms / 1000)}` : "";
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
      this.terms[i].hidden = this.numbers[i].hidden = OF_SOME.has(field) && row[field] === null;
    });
  }
}
