// Markdown within a paragraph: code, emphasis, links. In time linear in the text, and as nodes: text
// of a model never becomes markup, and nothing that it names is fetched.

const SAFE_LINK = /^(?:https?:\/\/|mailto:)[^\s\u0000-\u001f]+$/i;
const BARE_LINK = /https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,:;!?*_~]/y;
const SPACE = /\s/;
const WORD = /[\p{L}\p{N}]/u;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const MARKS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };
const MOST_OPEN = 16; // marks within one another; further ones are text
const LONGEST_LINK = 2048;

/** The nodes of a paragraph's text. */
function inline(text) {
  return new InlineReader(text).read();
}

class InlineReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.plain = ""; // not yet a node
    this.open = [{ mark: "", nodes: [] }]; // what is not closed yet, the innermost last
    this.ticks = null; // where runs of backticks begin, by their length, the last one first
  }

  read() {
    while (this.at < this.text.length) this.step(this.text[this.at]);
    while (this.open.length > 1) this.abandon();
    this.flush();
    return this.open[0].nodes;
  }

  step(char) {
    if (char === "\\" && PUNCTUATION.test(this.text[this.at + 1] ?? "")) {
      this.plain += this.text[this.at + 1];
      this.at += 2;
    } else if (char === "`") {
      this.code();
    } else if (char === "*" || char === "_" || char === "~") {
      this.emphasis(char);
    } else if (char === "[" || (char === "!" && this.text[this.at + 1] === "[")) {
      const mark = char === "[" ? "[" : "![";
      if (this.open.length < MOST_OPEN) this.begin(mark);
      else this.plain += mark;
      this.at += mark.length;
    } else if (char === "]") {
      this.link();
    } else if (char === "h" && !WORD.test(this.text[this.at - 1] ?? "")) {
      this.bareLink();
    } else {
      this.plain += char;
      this.at += 1;
    }
  }

  flush() {
    if (this.plain) this.open.at(-1).nodes.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  begin(mark) {
    this.flush();
    this.open.push({ mark, nodes: [] });
  }

  /** Closes the innermost mark as text: nothing closed it. */
  abandon() {
    this.flush();
    const { mark, nodes } = this.open.pop();
    this.open.at(-1).nodes.push(document.createTextNode(mark), ...nodes);
  }

  /** Closes the innermost mark with an element around what it holds. */
  close(wrap) {
    this.flush();
    const { nodes } = this.open.pop();
    this.open.at(-1).nodes.push(wrap(nodes));
  }

  code() {
    const length = this.run("`");
    const end = this.closingTicks(length, this.at + length);
    if (end === undefined) {
      this.plain += "`".repeat(length);
      this.at += length;
      return;
    }
    this.flush();
    let code = this.text.slice(this.at + length, end);
    if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
    this.open.at(-1).nodes.push(make("code", {}, code));
    this.at = end + length;
  }

  run(char) {
    let end = this.at;
    while (this.text[end] === char) end += 1;
    return end - this.at;
  }

  closingTicks(length, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const { 0: ticks, index } of this.text.matchAll(/`+/g)) {
        if (!this.ticks.has(ticks.length)) this.ticks.set(ticks.length, []);
        this.ticks.get(ticks.length).push(index);
      }
      this.ticks.forEach((starts) => starts.reverse());
    }
    const starts = this.ticks.get(length) ?? [];
    while (starts.length && starts.at(-1) < from) starts.pop();
    return starts.at(-1);
  }

  emphasis(char) {
    const length = this.run(char);
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + length] ?? " ";
    const inWord = char === "_" && WORD.test(before) && WORD.test(after);
    this.at += length;
    if (length > 3 || inWord || (char === "~" && length !== 2)) {
      this.plain += char.repeat(length);
      return;
    }
    let left = length;
    while (left && !SPACE.test(before) && this.closes(char, left)) {
      const { mark } = this.open.at(-1);
      this.close((nodes) => make(MARKS[mark], {}, nodes));
      left -= mark.length;
    }
    while (left) {
      const mark = char.repeat(Math.min(left, 2));
      if (!SPACE.test(after) && this.open.length < MOST_OPEN) this.begin(mark);
      else this.plain += mark;
      left -= mark.length;
    }
  }

  /** Whether `length` of the character close a mark; those that were opened in it are given up. */
  closes(char, length) {
    const from = this.open.findLastIndex(({ mark }) => mark.endsWith("[")) + 1; // not out of a link
    const isOpen = (fits) => this.open.findLastIndex(({ mark }, i) => i >= from && mark[0] === char && fits(mark.length));
    let found = isOpen((own) => own === length);
    if (found < 0) found = isOpen((own) => own < length);
    const isEmpty = found === this.open.length - 1 && !this.open[found].nodes.length && !this.plain;
    if (found < 0 || isEmpty) return false;
    while (this.open.length - 1 > found) this.abandon();
    return true;
  }

  /** At a closing bracket: a link, an image, which is shown as a link, or text. */
  link() {
    this.at += 1;
    const start = this.open.findLastIndex(({ mark }) => mark.endsWith("["));
    if (start < 0) {
      this.plain += "]";
      return;
    }
    while (this.open.length - 1 > start) this.abandon();
    const target = this.target();
    if (target === null) {
      this.abandon();
      this.plain += "]";
      return;
    }
    const isImage = this.open[start].mark === "![";
    this.close((nodes) => anchor(target, isImage ? ["image: ", ...nodes] : nodes));
  }

  /** Where a link leads, if it is one, and to a place that may be led to. */
  target() {
    if (this.text[this.at] !== "(") return null;
    let depth = 0; // of parentheses, which a link may have in pairs
    const most = Math.min(this.text.length, this.at + LONGEST_LINK);
    for (let end = this.at; end < most; end += 1) {
      if (this.text[end] === "(") depth += 1;
      if (this.text[end] === ")") depth -= 1;
      if (depth) continue;
      const [, href] = this.text.slice(this.at + 1, end).trim().match(/^<?([^\s>]*)/); // a title may follow
      if (!SAFE_LINK.test(href)) return null;
      this.at = end + 1;
      return href;
    }
    return null;
  }

  bareLink() {
    BARE_LINK.lastIndex = this.at;
    const href = BARE_LINK.exec(this.text)?.[0];
    const inLink = this.open.some(({ mark }) => mark.endsWith("["));
    if (!href || href.length > LONGEST_LINK || inLink || !SAFE_LINK.test(href)) {
      this.plain += "h";
      this.at += 1;
      return;
    }
    this.flush();
    this.open.at(-1).nodes.push(anchor(href, href));
    this.at += href.length;
  }
}

/** A link that opens apart, does not say where it was, and shows where it leads. */
function anchor(href, children) {
  return make("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}
