// A row for each model by its name: its replicas, and what it reads and writes.

const MOST_MODELS = 50;

class ModelTable {
  constructor(place) {
    Object.assign(this, { place, shown: "" });
  }

  update(pools, rates) {
    const models = new Map();
    for (const [pool, replicas] of Object.entries(pools)) {
      for (const row of replicas) {
        const one = models.get(row.model) ?? { pools: new Set(), ready: 0, all: 0, running: 0, waiting: 0 };
        one.pools.add(pool);
        one.all += 1;
        one.ready += row.state === "ready";
        one.running += row.running;
        one.waiting += row.waiting;
        models.set(row.model, one);
      }
    }
    const rows = [...models]
      .map(([name, one]) => ({ name, ...one, in: rates[name]?.tokens_in_per_s ?? 0, out: rates[name]?.tokens_out_per_s ?? 0 }))
      .sort((a, b) => b.in + b.out - a.in - a.out || a.name.localeCompare(b.name));
    const cells = rows.slice(0, MOST_MODELS).map((one) => [
      one.name, [...one.pools].join(", "), `${one.ready} of ${one.all}`,
      format.whole(one.running), format.whole(one.waiting), format.count(one.in), format.count(one.out),
    ]);
    const text = JSON.stringify(cells);
    if (text === this.shown) return;
    this.shown = text;
    const more = rows.length > MOST_MODELS ? `, the ${MOST_MODELS} busiest of ${rows.length}` : "";
    this.place.replaceChildren(table(`Models, as the whole fleet serves them${more}`,
      ["model", "pools", "ready", "running", "waiting", "tokens in/s", "tokens out/s"], cells));
  }
}
