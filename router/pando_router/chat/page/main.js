// The page: its conversations, of which one or two side by side are shown, the models, and the API key.

const MODELS_MS = 2000; // until there is one
const narrow = matchMedia("(max-width: 56rem)"); // too narrow for two

const state = loadConversations();
const panes = new Map(); // by conversation's id: they go on while others are shown
let active = state.shown.at(-1) ?? null; // where a conversation that is opened goes

const page = {
  models: [],
  mayExplain: false,
  changed() {
    notice(saveConversations(state));
    drawTabs();
  },
  wantKey: (error) => keyForm.open(error),
};
const keyForm = new KeyForm(start);

const conversationOf = (id) => state.conversations.find((one) => one.id === id);

function paneOf(id) {
  if (!panes.has(id)) {
    const pane = new Pane(conversationOf(id), page);
    pane.node.addEventListener("focusin", () => { active = id; });
    panes.set(id, pane);
  }
  return panes.get(id);
}

function create() {
  const conversation = newConversation(conversationOf(active)?.model ?? page.models[0] ?? "");
  state.conversations.push(conversation);
  return conversation.id;
}

/** Shows a conversation in place of the active one. */
function open(id) {
  if (!state.shown.includes(id)) {
    const at = state.shown.indexOf(active);
    state.shown.splice(Math.max(at, 0), at < 0 ? 0 : 1, id);
  }
  active = id;
  draw();
  paneOf(id).field.focus();
}

function close(id) {
  panes.get(id)?.stop();
  panes.delete(id);
  state.conversations = state.conversations.filter((one) => one.id !== id);
  state.shown = state.shown.filter((one) => one !== id);
  if (active === id) active = state.shown[0] ?? null;
  draw();
  byId("new").focus();
}

/** Brings what is shown in line with the state: one conversation, or two where there is room. */
function draw() {
  const others = () => state.conversations.map((one) => one.id).filter((id) => !state.shown.includes(id));
  const wanted = state.side ? 2 : 1;
  while (state.shown.length > wanted) state.shown.splice(state.shown.findIndex((id) => id !== active), 1);
  while (state.shown.length < wanted) state.shown.push(others()[0] ?? create());
  if (!state.shown.includes(active)) active = state.shown[0];
  const nodes = (narrow.matches ? [active] : state.shown).map((id) => paneOf(id).node);
  const place = byId("panes");
  if (nodes.length !== place.children.length || nodes.some((node, i) => node !== place.children[i])) {
    const scrolled = nodes.map((node) => node.isConnected);
    place.replaceChildren(...nodes);
    nodes.forEach((node, i) => { if (!scrolled[i]) toEnd(node.querySelector(".log")); });
  }
  place.classList.toggle("two", nodes.length > 1);
  byId("side").setAttribute("aria-pressed", String(state.side));
  page.changed();
}

const toEnd = (log) => { log.scrollTop = log.scrollHeight; };

function drawTabs() {
  const tabs = state.conversations.map((conversation) => {
    const { id } = conversation;
    const title = titleOf(conversation);
    const tab = make("button", { type: "button", class: "tab", ...(state.shown.includes(id) ? { "aria-current": "true" } : {}) }, title);
    tab.addEventListener("click", () => open(id));
    const end = make("button", { type: "button", class: "close", "aria-label": `Close: ${title}` }, "×");
    end.addEventListener("click", () => close(id));
    return make("li", {}, [tab, end]);
  });
  const focused = document.activeElement.closest?.("#tabs li");
  const at = focused ? [...byId("tabs").children].indexOf(focused) : -1;
  const isClose = document.activeElement.className === "close";
  byId("tabs").replaceChildren(...tabs);
  tabs[at]?.children[isClose ? 1 : 0].focus();
  const full = state.conversations.length >= MOST_CONVERSATIONS;
  byId("new").disabled = full;
  byId("new").title = full ? `A tab keeps ${MOST_CONVERSATIONS} conversations: close one` : "";
}

/** Learns which models there are, and whether the key may see why a request went where it did. */
async function start() {
  try {
    const { data } = await ask("/v1/models");
    page.models = data.map((model) => model.id);
    page.mayExplain = await mayExplain();
  } catch (error) {
    if (error.status === 401) return page.wantKey(error);
    byId("about").textContent = `No models: ${error.message}.`;
    return setTimeout(start, MODELS_MS);
  }
  byId("about").textContent = page.models.length ? "" : "No model is served yet.";
  byId("main").hidden = false;
  draw();
  panes.forEach((pane) => pane.offerModels());
  if (document.activeElement === document.body) paneOf(active).field.focus();
  if (!page.models.length) setTimeout(start, MODELS_MS);
}

/** /fleet is for whoever may see all of it, as /route/explain is. */
async function mayExplain() {
  try {
    await ask("/fleet");
    return true;
  } catch (error) {
    if (error.status === 403) return false;
    throw error;
  }
}

byId("new").addEventListener("click", () => open(create()));
byId("side").addEventListener("click", () => {
  state.side = !state.side;
  draw();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const within = [...panes.values()].find((pane) => pane.node.contains(event.target));
  (within ? [within] : [...panes.values()]).forEach((pane) => pane.stop());
});
narrow.addEventListener("change", draw);
addEventListener("pagehide", () => saveConversations(state));
start();
