// Fetches new data each second while the page is visible, and draws it.

const BLUE = "one"; // what is served
const LATER = "one dashed"; // the same, of another kind
const ORANGE = "two"; // what waits, is only expected, or is refused
const RED = "bad"; // what is wrong

const charts = [
  new LineChart("Prompt tokens found in caches",
    [["delivered", "delivered", BLUE], ["predicted", "predicted", ORANGE]], format.share, differs, { least: 1, most: 1 }),
  new LineChart("Requests per second",
    [["answered_per_s", "answered", BLUE], ["refused_per_s", "refused", ORANGE], ["failed_per_s", "failed", RED]], format.count,
    "Refused: 4xx, a client's mistake or its limits. Failed: 5xx, the fleet's. Those whose client left are in none.", { counts: true }),
  new LineChart("Requests now", [["in_flight", "in flight", BLUE], ["queued", "waiting for a replica", ORANGE]], format.count,
    "At this router. Requests wait here while all replicas have as many as they may, or none is ready.", { counts: true }),
  new LineChart("Tokens per second", [["tokens_in_per_s", "in", BLUE], ["tokens_out_per_s", "out", LATER]], format.count,
    "Of the whole fleet, as workers count them. In: prompts, with what was cached. Out: generated.", { counts: true }),
  new LineChart("Time to first token of streams", [["ttft_p50_s", "half within", BLUE], ["ttft_p95_s", "95 % within", LATER]],
    format.seconds, "From a request's arrival at this router to the first byte of its stream, with all waits."),
  new LineChart("Time between tokens", [["inter_token_s", "mean of all replicas", BLUE]], format.seconds,
    "Of running requests, as workers measure it; other engines do not report it."),
];
byId("figures").append(...charts.map((chart) => chart.figure));

const replicas = new Replicas();
const models = new ModelTable(byId("models"));
const eventLog = new EventLog(byId("events"));
const explain = new Explanations(wantKey);
const requests = new RequestTable((row) => explain.ofRow(row));
const freshness = new Freshness();
let points = null; // of the router's process `source`
let source = null;
let seen = { after: 0, event: 0, request: 0 }; // the newest of each kind
let timer = null;
let shownDecisions = null; // as text

const keyForm = new KeyForm(poll);

function wantKey(error) {
  clearTimeout(timer);
  timer = null;
  byId("about").textContent = "";
  keyForm.open(error);
}

/** Why the two lines of the first chart are apart. */
function differs(now) {
  const [predicted, delivered] = [now.predicted.at(-1), now.delivered.at(-1)];
  if (predicted === null || delivered === null) return "No prompts in the last seconds.";
  if (Math.abs(delivered - predicted) < 0.02) return "Replicas had what the shared tree expected.";
  if (delivered > predicted) {
    return "Delivered is higher: the tree counts whole chunks of 256 bytes, and replicas also keep what is shorter, such as a chat template's beginning.";
  }
  const cuts = Math.round(now.cuts_per_s.reduce((a, b) => a + b, 0));
  const corrected = cuts > 0 ? ` It was corrected about ${format.whole(cuts)} times in the time shown.` : "";
  return `Delivered is lower: replicas had evicted what the tree expected.${corrected}`;
}

function take(data) {
  const most = data.kept_s / data.interval_s;
  for (const field of Object.keys(data.points)) {
    data.points[field] = [...(points?.[field] ?? []), ...data.points[field]].slice(-most);
  }
  points = data.points;
  seen = { after: data.last, event: data.last_event, request: data.last_request };
}

function show(data) {
  const { router, pools, queues } = data;
  const rows = Object.values(pools).flat();
  const views = router.processes > 1 ? `one of ${router.processes} processes of this router` : "this router";
  byId("about").textContent =
    `Traffic as seen by ${views} (${router.host}, process ${router.process}), which is up for ${format.span(router.up_s)}; replicas as ` +
    `the whole fleet. Policy ${router.policy}. Rates and shares are over ${data.window_s} s.`;
  byId("chat").hidden = !router.chat;
  freshness.heard(data);
  const now = (field) => points[field].at(-1) ?? null;
  byId("tile-requests").textContent = format.count(now("answered_per_s"));
  byId("tile-failed").textContent = format.count(now("failed_per_s"));
  byId("tile-in-flight").textContent = format.whole(now("in_flight"));
  byId("tile-queued").textContent = format.whole(Object.values(queues).reduce((a, b) => a + b, 0));
  byId("tile-ready").textContent = `${rows.filter((row) => row.state === "ready").length} of ${rows.length}`;
  byId("tile-hits").textContent = format.share(now("delivered"));
  explain.begin(data.paths, rows[0]?.model ?? "model");
  keyForm.close();
  byId("main").hidden = false;
  const marks = eventLog.update(data.events, data.decisions);
  replicas.update(pools);
  models.update(pools, data.models);
  requests.take(data.requests);
  showDecisions(data.decisions);
  const span = Math.max(60, points.at.length * data.interval_s);
  charts.forEach((chart) => chart.update(points, span, marks));
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
  const cells = rows.map((one) => [format.clock(one.at_s), one.pool, `${one.before} to ${one.after}`, one.reason]);
  byId("decisions").replaceChildren(table("Replicas that are wanted", ["when", "pool", "replicas", "why"], cells));
}

const fresh = () => ask(`/dashboard/data?${new URLSearchParams(seen)}`, { signal: AbortSignal.timeout(10_000) });

async function poll() {
  clearTimeout(timer);
  timer = null;
  try {
    let data = await fresh();
    if (data.router.id !== source) {
      if (seen.after) {
        seen = { after: 0, event: 0, request: 0 };
        data = await fresh();
      }
      [points, source] = [null, data.router.id];
      eventLog.reset();
      requests.reset();
    }
    take(data);
    show(data);
  } catch (error) {
    if (!(error instanceof RouterError)) throw error;
    if (error.wantsKey) return wantKey(error);
    freshness.failed(error);
  } finally {
    if (!document.hidden && !keyForm.isOpen) timer = setTimeout(poll, 1000);
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !keyForm.isOpen && timer === null) poll();
});
poll();
