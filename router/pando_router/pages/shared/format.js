// Numbers and elements.

const byId = (id) => document.getElementById(id);

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const format = {
  count: (n) => (n === null ? "–" : n < 10 && n % 1 ? n.toFixed(1) : short.format(n)),
  whole: (n) => (n === null ? "–" : n.toLocaleString("en")),
  share: (n) => (n === null ? "–" : `${(100 * n).toFixed(n > 0 && n < 0.1 ? 1 : 0)} %`),
  seconds(n) {
    if (n === null) return "–";
    if (n < 5e-7) return "0 s"; // what is left of a sum of differences
    return n < 1 ? `${+(1000 * n).toPrecision(3)} ms` : `${+n.toPrecision(3)} s`;
  },
  span: (s) => (s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`),
  clock: (s) => new Date(1000 * s).toLocaleTimeString(),
  ago: (s) => (s < 1 ? "now" : s < 90 ? `${Math.round(s)} s ago` : `${+(s / 60).toFixed(1)} min ago`),
};

/** An element with attributes and children, in the XML namespace `space`, such as SVG's. */
function make(name, attributes = {}, children = [], space = null) {
  const node = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...[children].flat());
  return node;
}

const svg = (name, attributes, children) =>
  make(name, attributes, children, "http://www.w3.org/2000/svg");

function table(caption, head, rows) {
  const cells = (kind, row, scope) => row.map((text) => make(kind, scope ? { scope } : {}, text));
  return make("table", {}, [
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, cells("th", head, "col"))),
    make("tbody", {}, rows.map((row) => make("tr", {}, cells("td", row)))),
  ]);
}
