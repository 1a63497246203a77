// A line chart of the history: at most three lines, a legend with values, a note on what they mean, marks for
// events, and a table for readers who cannot see the chart. Lines differ by their dashes, too.

const HEIGHT = 150;
const LEFT = 52;
const BOTTOM = 18;
const TOP = 8;
const NEAR = 6; // pixels between the pointer and a mark that it points at

class LineChart {
  /**
   * `lines`: [[field of the points, its name, its classes], ...]. `note`: a text, or a function of the points that
   * returns one. `least`, `most` and `counts` are those of the scale.
   */
  constructor(title, lines, show, note, scale = {}) {
    Object.assign(this, { title, lines, show, scale, points: null, marks: [], hover: null, pointer: null });
    this.noteOf = typeof note === "function" ? note : () => note;
    this.values = lines.map(() => make("span", {}, "–"));
    this.when = make("span", { class: "when value" });
    this.note = make("p", { class: "note" });
    this.svg = svg("svg", { class: "chart", role: "img", "aria-label": title });
    this.rows = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, numbers` });
    this.details = make("details", {}, [make("summary", {}, "Numbers"), this.rows]);
    this.details.addEventListener("toggle", () => this.fill());
    this.figure = make("figure", {}, [
      make("figcaption", {}, [make("b", {}, title), ...this.legend(), this.when]),
      this.svg,
      this.note,
      this.details,
    ]);
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  legend() {
    return this.lines.map(([, name, kind]) => {
      const stroke = svg("svg", { class: `key ${kind}`, viewBox: "0 0 18 8", "aria-hidden": "true" },
        svg("path", { class: kind, d: "M0 4H18" }));
      return make("span", { class: "value" }, [stroke, `${name} `, this.values[this.lines.findIndex((line) => line[1] === name)]]);
    });
  }

  /** `marks`: [{ at, tone, words }, ...], what happened and when. */
  update(points, span, marks) {
    Object.assign(this, { points, span, marks });
    const note = this.noteOf(points);
    if (this.note.textContent !== note) this.note.textContent = note;
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
    const values = this.lines.flatMap(([field]) => this.points[field]);
    const top = topOf(values.reduce((a, b) => Math.max(a, b ?? 0), 0), this.scale);
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / top;
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const at = y(top * part);
      parts.push(svg("line", { class: "rule", x1: LEFT, x2: this.width - 4, y1: at, y2: at }));
      parts.push(svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, this.show(top * part)));
    }
    parts.push(svg("text", { x: LEFT, y: HEIGHT - 3 }, format.ago(this.span)));
    parts.push(svg("text", { x: this.width - 4, y: HEIGHT - 3, "text-anchor": "end" }, "now"));
    for (const { at, tone } of this.marks) {
      const x = this.x(at);
      if (x < LEFT) continue;
      parts.push(svg("line", { class: `mark ${tone}`, x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
      parts.push(svg("path", { class: `flag ${tone}`, d: `M${x - 4} 0h8l-4 7z` }));
    }
    for (const [field, , kind] of this.lines) {
      parts.push(svg("path", { class: kind, d: this.path(this.points[field], y) }));
    }
    if (this.hover !== null) {
      const x = this.x(this.points.at[this.hover]);
      parts.push(svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    this.svg.replaceChildren(...parts);
    this.showValues();
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
    this.pointer = x;
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
    const last = this.points.at.length - 1;
    const index = Math.min(this.hover ?? last, last);
    this.lines.forEach(([field], i) => {
      this.values[i].textContent = this.show(this.points[field][index]);
    });
    this.when.textContent = this.hover === null ? "" : this.pointedAt(index);
    const now = this.lines.map(([field, name]) => `${name} ${this.show(this.points[field].at(-1))}`);
    this.svg.setAttribute("aria-label", `${this.title}: now ${now.join(", ")}`);
  }

  /** When it was, and what happened there. */
  pointedAt(index) {
    const ago = format.ago(this.points.at.at(-1) - this.points.at[index]);
    const near = this.marks.filter((mark) => Math.abs(this.x(mark.at) - this.pointer) <= NEAR);
    return near.length ? `${ago}: ${near.at(-1).words}` : ago;
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
