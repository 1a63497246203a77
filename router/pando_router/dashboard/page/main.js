// Fetches new data each second while the page is visible, and draws it.

const charts = [
  new LineChart("Prompt tokens found in caches", [["delivered", "delivered"], ["predicted", "predicted"]], format.share, { least: 1, most: 1 }),
  new LineChart("Requests per second", [["answered_per_s", "answered"], ["refused_per_s", "refused (4xx)"], ["failed_per_s", "failed"]], format.count, { least: 1 }),
  new LineChart("Requests now", [["in_flight", "in flight"], ["queued", "waiting for a replica"]], format.count, { least: 1 }),
  new LineChart("Time to first token of streams", [["ttft_p50_s", "half within"], ["ttft_p95_s", "95 % within"]], format.seconds),
  new LineChart("Time between tokens", [["inter_token_s", "mean of all replicas"]], format.seconds),
];
byId("figures").append(...charts.map((chart) => chart.figure));

const replicas = new ReplicaCards(byId("replicas"));
const explain = new ExplainForms(wantKey);
let points = null; // of the router's process `source`, up to number `last`
let source = null;
let last = 0;
let timer = null;
let shownDecisions = null; // as text

const keyForm = new KeyForm(poll);

function wantKey(error) {
  clearTimeout(timer);
  timer = null;
  byId("about").textContent = "";
  keyForm.open(error);
}

function take(data) {
  const most = data.kept_s / data.interval_s;
  for (const field of Object.keys(data.points)) {
    data.points[field] = [...(points?.[field] ?? []), ...data.points[field]].slice(-most);
  }
  ({ points, last } = data);
}

const REDIS_TROUBLES = {
  away: ["Redis is away: this router places by what it knows itself."],
  read_only: ["Redis refuses writes: this router places by what it knows itself."],
  full: ["Redis is full: prompts that are new are not remembered."],
};

function show(data) {
  const { router, pools, queues } = data;
  const rows = Object.values(pools).flat();
  const views = router.processes > 1 ? `one of ${router.processes} processes of this router` : "this router";
  byId("about").textContent =
    `Traffic as seen by ${views} (${router.host}, process ${router.process}), which is up for ${Math.round(router.up_s / 60)} min; replicas as ` +
    `the whole fleet. Policy ${router.policy}. Rates and shares are over ${data.window_s} s.`;
  byId("chat").hidden = !router.chat;
  const troubles = [];
  troubles.push(...(REDIS_TROUBLES[router.redis] ?? []));
  if (router.draining) troubles.push("This router is shutting down.");
  notice(troubles.join(" "));
  const now = (field) => points[field].at(-1) ?? null;
  byId("tile-requests").textContent = format.count(now("answered_per_s"));
  byId("tile-in-flight").textContent = format.whole(now("in_flight"));
  byId("tile-queued").textContent = format.whole(Object.values(queues).reduce((a, b) => a + b, 0));
  byId("tile-ready").textContent = `${rows.filter((row) => row.state === "ready").length} of ${rows.length}`;
  byId("tile-hits").textContent = format.share(now("delivered"));
  explain.begin(data.paths, rows[0]?.model ?? "model");
  keyForm.close();
  byId("main").hidden = false;
  replicas.update(pools);
  showDecisions(data.decisions);
  const span = Math.max(60, points.at.length * data.interval_s);
  charts.forEach((chart) => chart.update(points, span));
}

/** The operator's decisions, newest first; hidden if there are none. Redrawn only on changes. */
function showDecisions(pools) {
  const rows = Object.entries(pools)
    .flatMap(([pool, past]) => past.map((one) => ({ pool, ...one })))
    .sort((a, b) => b.at_s - a.at_s);
  const text = JSON.stringify(rows);
  if (text === shownDecisions) return;
  shownDecisions = text;
  byId("decisions-section").hidden = !rows.length;
  const cells = rows.map((one) =>
    [new Date(1000 * one.at_s).toLocaleTimeString(), one.pool, `${one.before} to ${one.after}`, one.reason]);
  byId("decisions").replaceChildren(table("Replicas that are wanted", ["when", "pool", "replicas", "why"], cells));
}

async function poll() {
  clearTimeout(timer);
  timer = null;
  try {
    let data = await ask(`/dashboard/data?after=${last}`);
    if (data.router.id !== source) {
      if (last) data = await ask("/dashboard/data");
      [points, source] = [null, data.router.id];
    }
    take(data);
    show(data);
  } catch (error) {
    if (error.wantsKey) return wantKey(error);
    notice(`No data: ${error.message}`);
  }
  if (!document.hidden) timer = setTimeout(poll, 1000);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !keyForm.isOpen && timer === null) poll();
});
poll();
