"use strict";
const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const drawn = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const held = (block) => JSON.parse(block.querySelector(".data").textContent);

{
  const root = document.documentElement;
  const theme = document.querySelector("button[name=theme]");
  const isDark = () =>
    (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const named = () => (theme.textContent = isDark() ? "Light" : "Dark");
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    named();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
  named();
  theme.hidden = false;
}

{
  const folds = [...document.querySelectorAll("main > details")];
  const unfold = document.querySelector("button[name=unfold]");
  const named = () => {
    const all = folds.every((fold) => fold.open);
    unfold.textContent = all ? "Fold all" : "Unfold all";
    unfold.setAttribute("aria-expanded", all);
  };
  unfold.addEventListener("click", () => {
    const all = folds.every((fold) => fold.open);
    for (const fold of folds) fold.open = !all;
  });
  for (const fold of folds) fold.addEventListener("toggle", named);
  unfold.hidden = folds.length < 2;
  named();
  const open = () => {
    const target = folds.find((fold) => fold.id === decodeURIComponent(location.hash.slice(1)));
    if (target) target.open = true;
  };
  window.addEventListener("hashchange", open);
  open();
  let closed = []; // where a browser cannot print what is folded by style alone
  window.addEventListener("beforeprint", () => {
    closed = folds.filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const fold of closed) fold.open = false;
  });
}

{
  const tip = element("div", { className: "tip", hidden: true });
  document.body.append(tip);
  for (const hints of document.querySelectorAll(".hints")) {
    for (const title of hints.querySelectorAll("title")) {
      title.parentNode.dataset.says = title.textContent;
      title.remove(); // or the browser would show it, too
    }
    hints.addEventListener("pointermove", (event) => {
      tip.hidden = !event.target.dataset.says;
      if (tip.hidden) return;
      tip.textContent = event.target.dataset.says;
      const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
      tip.style.left = `${left}px`;
      tip.style.top = `${event.clientY + 14}px`;
    });
    hints.addEventListener("pointerleave", () => (tip.hidden = true));
  }
}

{
  const sortable = 6, searchable = 15; // rows
  const number = (text) => {
    const value = text.replace(/[,%]/g, "").trim();
    return value === "" ? NaN : Number(value);
  };
  for (const table of document.querySelectorAll(".table table")) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    if (rows.length < sortable) continue;
    heads.forEach((head, place) => {
      const label = element("button", { type: "button" }, ...head.childNodes);
      if (!label.textContent) label.setAttribute("aria-label", "name");
      head.replaceChildren(label);
      label.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const keys = new Map(rows.map((row) => [row, row.cells[place].textContent]));
        const numbers = [...keys.values()].every((text) => text === "" || !Number.isNaN(number(text)));
        const compared = (a, b) =>
          numbers ? number(keys.get(a)) - number(keys.get(b)) : keys.get(a).localeCompare(keys.get(b));
        const known = rows.filter((row) => keys.get(row) !== "").sort((a, b) => (down ? -1 : 1) * compared(a, b));
        body.replaceChildren(...known, ...rows.filter((row) => keys.get(row) === ""));
      });
    });
    if (rows.length < searchable) continue;
    const search = element("input", { type: "search", placeholder: "Search these rows" });
    search.setAttribute("aria-label", `Search: ${table.caption?.textContent ?? "rows"}`);
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
    table.closest(".table").prepend(search);
  }
}
