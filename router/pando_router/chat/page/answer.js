// An answer's markdown as elements, while it grows: blocks that are complete stay as they are, and only
// the last one is made anew, so a long answer costs no more for each piece than a short one.

const UNDECIDED = /(?:^|\n)([ >]*[-*+#`~_|\d.)]+ ?)$/; // a last line that may become anything
const DEEPEST = 6; // lists and quotes in one another; further ones are text

class Answer {
  constructor(node) {
    this.node = node;
    this.tail = ""; // the text from the last block on
    this.last = null; // that block
    this.awaited = false; // a frame in which what came since will be drawn
    this.fresh = "";
  }

  /** Adds a piece of text; it is drawn with the next frame. */
  add(piece) {
    this.fresh += piece;
    if (this.awaited) return;
    this.awaited = true;
    requestAnimationFrame(() => this.draw());
  }

  /** Draws all of it, now that its end has come. */
  finish() {
    this.draw(true);
  }

  draw(complete = false) {
    this.awaited = false;
    if (!this.fresh && !complete) return;
    this.tail += this.fresh;
    this.fresh = "";
    const undecided = complete ? 0 : (this.tail.match(UNDECIDED)?.[1].length ?? 0);
    const found = blocks(this.tail.slice(0, this.tail.length - undecided));
    if (!found.length) return;
    const [first, ...others] = found;
    if (this.last?.kind === "code" && first.kind === "code" && this.last.language === first.language && first.text.startsWith(this.last.text)) {
      this.code.appendData(first.text.slice(this.last.text.length));
    } else {
      this.remove();
      this.place(first);
    }
    others.forEach((block) => this.place(block));
    this.last = found.at(-1);
    this.tail = this.tail.slice(this.last.start);
    this.last.start = 0;
  }

  place(block) {
    this.placed = placeBlock(this.node, block, 0);
    if (block.kind === "code") this.code = this.placed.querySelector("code").firstChild;
  }

  /** Takes the last block away; a list that is empty then, too. */
  remove() {
    const list = this.placed?.parentNode;
    this.placed?.remove();
    this.placed = null;
    if (list && list !== this.node && !list.firstChild) list.remove();
  }
}

/** Adds a block to `node`, an item to the list that is there; returns its element. */
function placeBlock(node, block, depth) {
  if (block.kind !== "item") {
    const element = elementOf(block, depth);
    node.append(element);
    return element;
  }
  const name = block.ordered ? "OL" : "UL";
  let list = node.lastElementChild;
  if (list?.tagName !== name) {
    list = make(name, block.ordered && block.number !== 1 ? { start: block.number } : {});
    node.append(list);
  }
  const item = make("li");
  list.append(item);
  fill(item, block.text, depth + 1);
  return item;
}

function elementOf(block, depth) {
  switch (block.kind) {
    case "heading":
      return make(`h${Math.min(block.level + 2, 6)}`, {}, inline(block.text)); // below the page's own
    case "code":
      return codeBlock(block);
    case "rule":
      return make("hr");
    case "quote": {
      const quote = make("blockquote");
      fill(quote, block.text, depth + 1);
      return quote;
    }
    case "table":
      return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
        make("table", {}, [
          make("thead", {}, row("th", block.head)),
          make("tbody", {}, block.rows.map((one) => row("td", one))),
        ]));
    default:
      return make("p", {}, inline(block.text));
  }
}

function fill(node, text, depth) {
  if (depth > DEEPEST) node.append(text);
  else blocks(text).forEach((block) => placeBlock(node, block, depth));
}

const row = (kind, texts) => make("tr", {}, texts.map((text) => make(kind, {}, inline(text))));

function codeBlock({ language, text }) {
  const code = make("code");
  code.append(document.createTextNode(text));
  const head = make("div", { class: "code-head" }, make("span", {}, language || "code"));
  if (navigator.clipboard) {
    const copy = make("button", { type: "button", class: "small" }, "Copy");
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    });
    head.append(copy);
  }
  return make("div", { class: "code" }, [
    head,
    make("pre", { tabindex: "0", role: "region", "aria-label": language ? `Code, ${language}` : "Code" }, code),
  ]);
}
