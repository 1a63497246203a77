// Splits markdown into its top-level blocks: paragraphs, headings, code, lists, quotes, tables, rules.
// Each knows where it starts, so a text that grows is read from its last block on.

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?: (.*))?$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ITEM = /^ {0,3}([-*+]|\d{1,9}[.)])(?: {1,4}(?=\S)| *$|(?= ))/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

const isBlank = (line) => line === undefined || !line.trim();

/** Whether a line begins a block in the midst of a paragraph. */
const begins = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);

/** The blocks of a text: {kind, start, ...}, `start` in characters of the text. */
function blocks(text) {
  const lines = text.split("\n");
  const found = [];
  let start = 0;
  for (let at = 0; at < lines.length; ) {
    const end = isBlank(lines[at]) ? at + 1 : take(lines, at, start, found);
    for (; at < end; at += 1) start += lines[at].length + 1;
  }
  return found;
}

/** Adds the block that begins at line `at`; returns the line after it. */
function take(lines, at, start, found) {
  const line = lines[at];
  let match;
  if ((match = line.match(FENCE))) {
    const [, fence, language] = match;
    const closing = (other) => other.trim().length >= fence.length && /^ {0,3}(`+|~+) *$/.test(other) && other.trim()[0] === fence[0];
    const end = lines.findIndex((other, i) => i > at && closing(other));
    const body = lines.slice(at + 1, end < 0 ? undefined : end);
    found.push({ kind: "code", start, language, text: body.join("\n") });
    return end < 0 ? lines.length : end + 1;
  }
  if ((match = line.match(HEADING))) {
    found.push({ kind: "heading", start, level: match[1].length, text: (match[2] ?? "").replace(/ #+ *$/, "") });
    return at + 1;
  }
  if (RULE.test(line)) {
    found.push({ kind: "rule", start });
    return at + 1;
  }
  if (ITEM.test(line)) return takeItem(lines, at, start, found);
  if (QUOTE.test(line)) {
    const end = until(lines, at + 1, (other) => isBlank(other) || (!QUOTE.test(other) && begins(other)));
    const inside = lines.slice(at, end).map((other) => other.replace(QUOTE, ""));
    found.push({ kind: "quote", start, text: inside.join("\n") });
    return end;
  }
  if (line.includes("|") && TABLE_RULE.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) {
    const end = until(lines, at + 2, (other) => isBlank(other) || !other.includes("|"));
    found.push({ kind: "table", start, head: cells(line), rows: lines.slice(at + 2, end).map(cells) });
    return end;
  }
  const end = until(lines, at + 1, (other) => isBlank(other) || begins(other));
  found.push({ kind: "paragraph", start, text: lines.slice(at, end).join("\n") });
  return end;
}

function until(lines, from, ends) {
  let at = from;
  while (at < lines.length && !ends(lines[at])) at += 1;
  return at;
}

/** One item of a list, with the lines that are indented below it. */
function takeItem(lines, at, start, found) {
  const [marker, kind] = lines[at].match(ITEM);
  const inside = [lines[at].slice(marker.length)];
  const indent = new RegExp(`^ {1,${marker.length}}`);
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const isIndented = /^(?: {2}|\t)/.test(line);
    const goesOn = isBlank(line)
      ? /^(?: {2}|\t)/.test(lines.slice(end, end + 4).find((next) => !isBlank(next)) ?? "")
      : isIndented || (!isBlank(lines[end - 1]) && !begins(line));
    if (!goesOn) break;
    inside.push(line.replace(/^\t/, "    ").replace(indent, ""));
  }
  const number = parseInt(kind, 10);
  found.push({ kind: "item", start, ordered: number >= 0, number, text: inside.join("\n") });
  return end;
}

function cells(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
}
