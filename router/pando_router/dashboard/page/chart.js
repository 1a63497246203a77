// A line chart of the history: at most three lines, a legend with values, and a table for readers who
// cannot see the chart. The second line is dashed and the third dotted, so that lines differ by more than colour.

const HEIGHT = 150;
const LEFT = 52;
const BOTTOM = 18;
const TOP = 8;
const LINES = ["one", "two", "bad"]; // the third shows what is wrong

class LineChart {
  /** `lines`: [[field of the points, its name], ...]. `least`: the smallest top of the scale. */
  constructor(title, lines, show, { least = 0, most = Infinity } = {}) {
    Object.assign(this, { title, lines, show, least, most, points: null, hover: null });
    this.values = lines.map(() => make("span", {}, "–"));
    this.when = make("span", { class: "value" });
    this.svg = svg("svg", { class: "chart", role: "img", "aria-label": title });
    this.rows = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, numbers` });
    this.details = make("details", {}, [make("summary", {}, "Numbers"), this.rows]);
    this.details.addEventListener("toggle", () => this.fill());
    this.figure = make("figure", {}, [
      make("figcaption", {}, [make("b", {}, title), ...this.legend(), this.when]),
      this.svg,
      this.details,
    ]);
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  legend() {
    return this.lines.map(([, name], i) =>
      make("span", { class: "value" }, [make("i", { class: LINES[i] }), `${name} `, this.values[i]]));
  }

  update(points, span) {
    this.points = points;
    this.span = span;
    this.draw();
    this.fill();
  }

  x(at) {
    const last = this.points.at.at(-1);
    return LEFT + (this.width - LEFT - 4) * (1 - (last - at) / this.span);
  }

  draw() {
    this.width = this.svg.clientWidth;
    if (!this.points?.at.length || !this.width) return;
    const top = this.top();
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / top;
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const at = y(top * part);
      parts.push(svg("line", { class: "rule", x1: LEFT, x2: this.width - 4, y1: at, y2: at }));
      parts.push(svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, this.show(top * part)));
    }
    parts.push(svg("text", { x: LEFT, y: HEIGHT - 3 }, format.ago(this.span)));
    parts.push(svg("text", { x: this.width - 4, y: HEIGHT - 3, "text-anchor": "end" }, "now"));
    this.lines.forEach(([field], i) =>
      parts.push(svg("path", { class: LINES[i], d: this.path(this.points[field], y) })));
    if (this.hover !== null) {
      const x = this.x(this.points.at[this.hover]);
      parts.push(svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    this.svg.replaceChildren(...parts);
    this.showValues();
  }

  /** The top of the scale: 1, 2 or 5 times a power of ten, at least the highest value. */
  top() {
    let highest = this.least;
    for (const [field] of this.lines) {
      for (const value of this.points[field]) if (value > highest) highest = value;
    }
    if (!highest) return 1;
    const power = 10 ** Math.floor(Math.log10(highest));
    return Math.min(this.most, [1, 2, 5, 10].find((n) => n * power >= highest * 0.999) * power);
  }

  /** A line through the values, interrupted where there are none. */
  path(values, y) {
    let path = "";
    let pen = "M";
    values.forEach((value, i) => {
      if (value === null) {
        pen = "M";
      } else {
        const x = this.x(this.points.at[i]).toFixed(1);
        path += `${pen}${x} ${y(value).toFixed(1)}${pen === "M" ? "h.1" : ""}`;
        pen = "L";
      }
    });
    return path;
  }

  point(x) {
    if (!this.points?.at.length) return;
    const at = this.points.at;
    const last = at.at(-1);
    if (x === null) {
      this.hover = null;
    } else {
      const wanted = last - this.span * (1 - (x - LEFT) / (this.width - LEFT - 4));
      this.hover = at.reduce((best, t, i) => (Math.abs(t - wanted) < Math.abs(at[best] - wanted) ? i : best), 0);
    }
    this.draw();
  }

  /** Updates the legend's values: those under the pointer, or the last ones. */
  showValues() {
    const index = this.hover ?? this.points.at.length - 1;
    this.lines.forEach(([field], i) => {
      this.values[i].textContent = this.show(this.points[field][index]);
    });
    this.when.textContent = this.hover === null ? "" : format.ago(this.points.at.at(-1) - this.points.at[index]);
    const now = this.lines.map(([field, name]) => `${name} ${this.show(this.points[field].at(-1))}`);
    this.svg.setAttribute("aria-label", `${this.title}: now ${now.join(", ")}`);
  }

  /** Updates the table, while it is open: now, and each half minute before. */
  fill() {
    if (!this.details.open || !this.points?.at.length) return;
    const rows = [];
    for (let i = this.points.at.length - 1; i >= 0; i -= 30) {
      const when = format.ago(this.points.at.at(-1) - this.points.at[i]);
      rows.push([when, ...this.lines.map(([field]) => this.show(this.points[field][i]))]);
    }
    this.rows.replaceChildren(table(this.title, ["when", ...this.lines.map(([, name]) => name)], rows));
  }
}
