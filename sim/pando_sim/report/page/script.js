"use strict";
// Makes tables sort, and shows one run alone. The page says the same without it.

document.documentElement.classList.add("js");

/** A cell's number, or its text; what has no value comes last either way. */
function sortsBy(cell) {
  const value = cell.dataset.value;
  return value === undefined ? cell.textContent.trim() : value === "" ? null : Number(value);
}

function compared(a, b) {
  if (a === null || b === null) return a === b ? 0 : a === null ? Infinity : -Infinity;
  return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
}

function sort(table, head) {
  const column = head.cellIndex;
  const falls = head.getAttribute("aria-sort") === "ascending";
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const order = compared(sortsBy(a.cells[column]), sortsBy(b.cells[column]));
    return falls && Number.isFinite(order) ? -order : order;
  });
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.sorts")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, head));
  }
}

const boxes = [...document.querySelectorAll(".legend input")];

for (const button of document.querySelectorAll(".legend .only")) {
  button.addEventListener("click", () => {
    for (const box of boxes) box.checked = box.id === `show-${button.dataset.run}`;
  });
}

document.querySelector(".legend .all")?.addEventListener("click", () => {
  for (const box of boxes) box.checked = true;
});
