// The replicas: a card each while they are few. When they are many, a map of all by pool, and cards of those that
// match the search, the worst first.

const MOST_CARDS = 12;
const HEATS = 5; // shades of a cell

class Replicas {
  constructor() {
    this.list = byId("replicas");
    this.maps = byId("pool-maps");
    this.search = byId("search");
    this.found = byId("found");
    this.cards = new Map();
    this.cells = new Map();
    this.pools = new Map();
    this.rows = [];
    this.picked = null; // the id of the cell that was clicked
    this.search.addEventListener("input", () => {
      this.picked = null;
      this.draw();
    });
  }

  update(pools) {
    this.rows = Object.entries(pools).flatMap(([pool, replicas]) =>
      replicas.map((row) => ({ ...row, pool, id: JSON.stringify([pool, row.replica]) })));
    this.draw();
  }

  draw() {
    const isLarge = this.rows.length > MOST_CARDS;
    byId("search-form").hidden = this.maps.hidden = byId("map-legend").hidden = !isLarge;
    const worst = [...this.rows].sort((a, b) => severity(b) - severity(a) || heat(b) - heat(a) || compare(a, b));
    const matching = isLarge ? worst.filter((row) => this.matches(row)) : worst;
    const shown = matching.slice(0, MOST_CARDS);
    this.showCards(shown);
    if (!isLarge) return;
    this.found.textContent =
      `${shown.length} of ${matching.length} replicas that match, of ${this.rows.length} in all; the worst first.`;
    this.showMaps(worst, new Set(matching.map((row) => row.id)));
  }

  matches(row) {
    if (this.picked) return row.id === this.picked;
    const words = this.search.value.trim().toLowerCase().split(/\s+/);
    const text = `${row.pool} ${row.replica} ${row.model} ${stateOf(row)}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  showCards(rows) {
    const known = this.cards;
    this.cards = new Map(rows.map((row) => {
      const key = `${row.id}${row.incarnation}`;
      return [key, known.get(key) ?? new ReplicaCard(row)];
    }));
    const cards = [...this.cards.values()];
    replace(this.list, cards.map((card) => card.node));
    rows.forEach((row, i) => cards[i].update(row));
  }

  showMaps(rows, matching) {
    const byPool = Map.groupBy(rows, (row) => row.pool);
    const knownCells = this.cells;
    const knownPools = this.pools;
    this.cells = new Map(rows.map((row) => [row.id, knownCells.get(row.id) ?? this.cell(row)]));
    this.pools = new Map([...byPool.keys()].sort().map((pool) => [pool, knownPools.get(pool) ?? new PoolMap(pool)]));
    replace(this.maps, [...this.pools.values()].map((map) => map.node));
    for (const [pool, members] of byPool) {
      this.pools.get(pool).update(members, members.map((row) => this.cells.get(row.id)));
    }
    for (const row of rows) paint(this.cells.get(row.id), row, matching.has(row.id));
  }

  /** The search is the keyboard's way to a replica: hundreds of stops for Tab would be none. */
  cell(row) {
    const cell = make("button", { type: "button", tabindex: "-1" });
    cell.addEventListener("click", () => {
      this.picked = this.picked === row.id ? null : row.id;
      this.search.value = "";
      this.draw();
    });
    return cell;
  }
}

class PoolMap {
  constructor(pool) {
    this.counts = make("span", { class: "value" });
    this.grid = make("div", { class: "cells" });
    this.node = make("div", { class: "card" }, [make("h3", {}, [`${pool} `, this.counts]), this.grid]);
  }

  update(rows, cells) {
    const states = Map.groupBy(rows, (row) => row.state);
    this.counts.textContent = [...states].map(([state, ones]) => `${ones.length} ${state}`).join(", ");
    replace(this.grid, cells);
  }
}

/** The share of its KV memory that is pinned, in shades; requests that wait make it hottest. */
function heat(row) {
  if (row.waiting) return HEATS - 1;
  const share = row.capacity_tokens ? row.pinned_tokens / row.capacity_tokens : 0;
  return Math.min(HEATS - 1, Math.floor(share * HEATS));
}

function paint(cell, row, matches) {
  const look = severity(row) ? TONES[severity(row)] : `heat-${heat(row)}`;
  const kind = `cell ${look}${matches ? "" : " other"}`;
  if (cell.className !== kind) cell.className = kind;
  const share = row.capacity_tokens ? format.share(row.pinned_tokens / row.capacity_tokens) : "unknown";
  const words = `${row.replica}: ${stateOf(row)}, ${share} pinned, ${row.running} running, ${row.waiting} waiting`;
  if (cell.title !== words) {
    cell.title = words;
    cell.setAttribute("aria-label", words);
  }
}

const compare = (a, b) => a.id.localeCompare(b.id, "en", { numeric: true });

/** Makes `nodes` the children of `place`, without touching it if they are. */
function replace(place, nodes) {
  const now = place.children;
  if (nodes.length !== now.length || nodes.some((node, i) => node !== now[i])) place.replaceChildren(...nodes);
}
