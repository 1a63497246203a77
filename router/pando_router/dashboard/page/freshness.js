// Whether what the page shows is still true. Old data are dimmed, with their age.

const OLD_S = 3; // without an answer from the router

const REDIS_TROUBLES = {
  away: "Redis is away: this router places by what it knows itself.",
  read_only: "Redis refuses writes: this router places by what it knows itself.",
  full: "Redis is full: prompts that are new are not remembered.",
};

class Freshness {
  constructor() {
    this.heardAt = null; // by performance.now, in ms
    this.error = "";
    this.troubles = [];
    setInterval(() => this.show(), 1000);
  }

  heard({ router, pools }) {
    this.heardAt = performance.now();
    this.error = "";
    const ages = Object.values(pools).flat().map((row) => row.age_ms);
    const youngest_s = ages.length ? Math.min(...ages) / 1000 : 0;
    const isOld = router.redis === "away" && youngest_s > OLD_S;
    byId("fleet").classList.toggle("stale", isOld);
    this.troubles = [];
    if (router.redis in REDIS_TROUBLES) this.troubles.push(REDIS_TROUBLES[router.redis]);
    if (isOld) this.troubles.push(`The replicas are shown as they were ${format.ago(youngest_s)}.`);
    if (router.draining) this.troubles.push("This router is shutting down.");
    this.show();
  }

  failed(error) {
    this.error = error.message;
    this.show();
  }

  show() {
    if (!byId("key-form").hidden) return;
    const age_s = this.heardAt === null ? 0 : (performance.now() - this.heardAt) / 1000;
    const isOld = age_s > OLD_S && !document.hidden;
    byId("main").classList.toggle("stale", isOld);
    const lines = [...this.troubles];
    if (isOld) lines.unshift(`${capital(this.error || "the router does not answer")}. What you see is ${Math.round(age_s)} s old.`);
    else if (this.error && this.heardAt === null) lines.unshift(`No data: ${this.error}.`);
    notice(lines.join(" "));
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
