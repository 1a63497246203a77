// What happened: marks on the charts, and a list. The operator's scaling decisions are among it.

const MOST_EVENTS = 300; // as many as the router keeps
const LISTED_EVENTS = 12;
const NAMED = 3; // of those that happened at the same second

const HAPPENED = {
  joined: ["good", (one) => `${where(one)} joined`],
  ready: ["good", (one) => `${where(one)} is ready again`],
  draining: ["two", (one) => `${where(one)} drains`],
  left: ["two", (one) => `${where(one)} left`],
  stalled: ["bad", (one) => `${where(one)} stalls: its engine is silent`],
  lost: ["bad", (one) => `${where(one)} is lost`],
  migrated: ["two", (one) => `${one.count} ${one.count === 1 ? "stream" : "streams"} of ${where(one)} went on elsewhere`],
  redis: ["", (one) => `Redis is ${one.redis.replace("_", "-")}`],
  differ: ["bad", (one) => `prompts ${one.tenant && `of tenant ${one.tenant} `}to ${one.model} differ from byte ${one.byte} on, so caches do not help`],
  scaled: ["", (one) => `${one.pool} is to have ${one.after} replicas instead of ${one.before}: ${one.reason}`],
};

const where = (one) => `${one.pool} / ${one.replica}`;

class EventLog {
  constructor(list) {
    Object.assign(this, { list, events: [], shown: "" });
  }

  /** Returns the marks: one for each second in which something happened. */
  update(events, decisions) {
    this.events = [...this.events, ...events].slice(-MOST_EVENTS);
    const scaled = Object.entries(decisions)
      .flatMap(([pool, past]) => past.map((one) => ({ what: "scaled", pool, at: one.at_s, ...one })));
    const groups = new Map();
    for (const one of [...this.events, ...scaled].sort((a, b) => a.at - b.at)) {
      const second = Math.floor(one.at);
      if (!groups.has(second)) groups.set(second, []);
      groups.get(second).push(one);
    }
    const marks = [...groups.values()].map((ones) => this.mark(ones));
    this.show(marks);
    return marks;
  }

  reset() {
    this.events = [];
  }

  /** The worst of them gives the tone. */
  mark(ones) {
    const tones = ones.map((one) => HAPPENED[one.what][0]);
    const words = ones.slice(0, NAMED).map((one) => HAPPENED[one.what][1](one));
    if (ones.length > NAMED) words.push(`and ${ones.length - NAMED} more`);
    const tone = ["bad", "two", "good"].find((one) => tones.includes(one)) ?? "";
    return { at: ones[0].at, tone, words: words.join("; ") };
  }

  show(marks) {
    const last = marks.slice(-LISTED_EVENTS).reverse();
    const text = JSON.stringify(last);
    if (text === this.shown) return;
    this.shown = text;
    if (!last.length) this.list.replaceChildren(make("li", { class: "value" }, "Nothing since this router started."));
    else this.list.replaceChildren(...last.map(({ at, tone, words }) =>
      make("li", {}, [make("i", { class: tone }), make("span", { class: "value" }, `${format.clock(at)} `), words])));
  }
}
